"""Samplers: they generate text, behind the one interface :class:`rlinf.interfaces.Sampler`.

``hf`` needs transformers only, ``vllm`` and ``server`` need vLLM here or elsewhere. Every module is imported by the
one that needs it; this package itself imports nothing heavy.
"""
