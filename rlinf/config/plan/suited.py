"""What a configuration of text leaves to the machine, decided for this one: the precision, and the micro-batch."""

from __future__ import annotations

from dataclasses import replace

from rlinf.config.machine import memory_bytes
from rlinf.config.plan.micro_batch import fitting_micro_batch
from rlinf.config.plan.precision import policy_dtype
from rlinf.config.schema import Config


def suited(config: Config, *, on_gpu: bool, learner_on_gpu: bool) -> tuple[Config, dict[str, str]]:
    """``config`` as this machine runs it, the same for all workers; and what is not as it says, for people.

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
            notes["learner.micro_batch_tokens"] = f"{fits}: {tokens} do not fit into half of this machine's memory"
            config = replace(config, learner=replace(config.learner, micro_batch_tokens=fits))
    return config, notes
