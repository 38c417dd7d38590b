"""What a configuration of text leaves to the machine, decided for this one: the precision, and the micro-batch."""

from __future__ import annotations

from dataclasses import replace

from rlinf.base.machine import memory_bytes
from rlinf.config.experiment import Config
from rlinf.models.architecture_numbers import decoder_shape
from rlinf.planning.memory import estimate, layer_values, recomputes
from rlinf.planning.precision import policy_dtype

_SHARE = 0.5
"""Of the machine's memory; the rest is for Python, Ray, the operating system and passing peaks."""
_STEP = 1024


def fit_to_machine(config: Config, *, on_gpu: bool, learner_on_gpu: bool) -> tuple[Config, dict[str, str]]:
    """Return ``config`` as this machine runs it, the same for all workers; and what differs from it, for people.

    ``on_gpu``: learner or samplers have GPUs.
    """
    notes: dict[str, str] = {}
    asked, dtype = config.policy.dtype, policy_dtype(config, on_gpu=on_gpu)
    if asked == "auto" and dtype == "bfloat16" and not learner_on_gpu:
        notes["policy.dtype auto"] = "bfloat16: a large model, and this CPU has instructions for it"
    config = replace(config, policy=replace(config.policy, dtype=dtype))
    if not learner_on_gpu:
        tokens, fits = config.learner.micro_batch_tokens, fitting_micro_batch(config, memory_bytes())
        if fits < tokens:
            notes["learner.micro_batch_tokens"] = (
                f"reduced from {tokens} to {fits}, so that half of this machine's memory holds them"
            )
            config = replace(config, learner=replace(config.learner, micro_batch_tokens=fits))
    return config, notes


def fitting_micro_batch(config: Config, memory_bytes: int) -> int:
    """Return ``learner.micro_batch_tokens``, or what fits with weights, optimiser and samplers on a machine's CPU.

    ``memory_bytes`` is all that the machine has, not what is free now: a run that is resumed cuts its batches as
    before, bit for bit. Of an architecture that is not known here nothing is lowered.
    """
    asked = config.learner.micro_batch_tokens
    decoder = decoder_shape(config.policy)
    if decoder is None:
        return asked
    ranks, memory = config.learner.num_workers, estimate(config, decoder, 0)
    taken = (
        ranks * (memory.learner + memory.host + memory.rank["logits"]) + config.rollout.num_samplers * memory.sampler
    )
    # Bytes that the backward pass keeps of a token, all in float32: norms, attention and residuals are on a
    # CPU.
    kept = decoder.hidden if recomputes(config) else layer_values(decoder)
    fits = int((_SHARE * memory_bytes - taken) / ranks / (4 * decoder.layers * kept))
    return min(asked, max(_STEP, fits // _STEP * _STEP))
