"""The precision in which a language model is computed if the configuration leaves it open."""

from __future__ import annotations

from typing import Literal

from rlinf.base.machine import multiplies_bfloat16
from rlinf.config.experiment import Config
from rlinf.models.architecture_numbers import decoder_shape
from rlinf.schema.derived import activation_dtype

BFLOAT16_PARAMETERS = 20_000_000
"""From this size on, bfloat16 is faster on a CPU that has instructions for it. Smaller models lose more by the
conversions than they gain (`benchmarks/results/precision.md`)."""


def policy_dtype(config: Config, *, on_gpu: bool) -> Literal["float32", "bfloat16"]:
    """Return ``float32`` or ``bfloat16``: `policy.dtype`, or for `auto` what suits the device and the model's size.

    Megatron stays in float32 on a CPU: it would keep its weights in bfloat16 too, and was not measured there.
    """
    dtype = config.policy.dtype
    if dtype != "auto" or on_gpu:
        return activation_dtype(dtype, on_gpu=on_gpu)
    decoder = decoder_shape(config.policy)
    large = decoder is not None and decoder.parameters >= BFLOAT16_PARAMETERS
    return "bfloat16" if large and config.learner.backend != "megatron" and multiplies_bfloat16() else "float32"
