"""Samplers: they generate text, behind the one interface :class:`rlinf.interfaces.Sampler`.

``hf`` needs transformers only, ``vllm`` and ``server`` need vLLM here or elsewhere. This package imports none of them
until a sampler is built.
"""

from __future__ import annotations

from rlinf.samplers.build import SAMPLERS, build_sampler, environment, resolve_name
from rlinf.samplers.spec import SamplerSpec

__all__ = ["SAMPLERS", "SamplerSpec", "build_sampler", "environment", "resolve_name"]
