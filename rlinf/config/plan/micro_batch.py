"""How many tokens of a micro-batch the memory of a CPU machine holds."""

from __future__ import annotations

from rlinf.config.plan.architecture import Decoder, decoder_of
from rlinf.config.plan.memory import estimate, layer_values, recomputes
from rlinf.config.schema import Config

_SHARE = 0.5
"""Of the machine's memory; the rest is for Python, Ray, the operating system and passing peaks."""
_STEP = 1024


def fitting_micro_batch(config: Config, memory_bytes: int) -> int:
    """``learner.micro_batch_tokens``, or as many as fit beside weights, optimiser and samplers on one machine's CPU.

    ``memory_bytes`` is all that the machine has, not what is free now: a run that is resumed cuts its batches as
    before, bit for bit. Of an architecture that is not known here nothing is lowered.
    """
    asked = config.learner.micro_batch_tokens
    decoder = decoder_of(config.policy)
    if decoder is None:
        return asked
    ranks, memory = config.learner.num_workers, estimate(config, decoder, 0)
    taken = ranks * (memory.learner + memory.host + memory.logits) + config.rollout.num_samplers * memory.sampler
    fits = int((_SHARE * memory_bytes - taken) / ranks / _bytes_per_token(config, decoder))
    return min(asked, max(_STEP, fits // _STEP * _STEP))


def _bytes_per_token(config: Config, decoder: Decoder) -> int:
    """Bytes that the backward pass keeps of a token, all in float32: norms, attention and residuals are on a CPU."""
    kept = decoder.hidden if recomputes(config) else layer_values(decoder)
    return 4 * decoder.layers * kept
