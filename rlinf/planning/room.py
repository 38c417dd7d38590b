"""Whether the weights of a run, their gradients and the optimiser's state fit this machine at all."""

from __future__ import annotations

from collections.abc import Mapping

from rlinf.base.errors import UserError
from rlinf.base.machine import gpu_count, memory_bytes
from rlinf.config.derived import is_text, is_vla
from rlinf.config.experiment import Config
from rlinf.models.architecture_numbers import picture_decoder_shape
from rlinf.planning.counted import text_memory
from rlinf.planning.describe import size_text
from rlinf.planning.memory import estimate
from rlinf.planning.towers import towers_memory, towers_of
from rlinf.schema import PolicyConfig, TowerConfig


class TooLargeError(UserError):
    """A model that this machine's memory cannot hold while it is trained."""


def require_room(config: Config) -> None:
    """Raise TooLargeError if the learner's weights, gradients and optimiser state alone are more than the memory here.

    Activations, samplers and environments need more. Runs with GPUs, and those of a cluster elsewhere, are not judged.
    """
    cluster = config.cluster
    if gpu_count() or cluster.address or cluster.gpu_memory_gb is not None:
        return
    parameters, rank = _learner(config)
    needed = rank * config.learner.num_workers
    if needed <= memory_bytes():
        return
    policy = config.policy
    models: Mapping[str, PolicyConfig | TowerConfig] = {"policy": policy} if is_text(config) else towers_of(config)
    keys = [f"{key}.{'architecture' if model.path is None else 'path'}" for key, model in models.items()]
    sizes = "hidden_size, intermediate_size and num_hidden_layers"
    if "policy.flow.pi0.architecture" in keys:
        sizes = f"vlm_config.text_config and dit_config, with {sizes}"
    raise TooLargeError(
        f"{' and '.join(keys)}: the model has {parameters:,} parameters. Weights, gradients and optimiser need "
        f"{size_text(needed)}, and this machine has {size_text(memory_bytes())} of memory. What makes an architecture "
        f"smaller is {sizes}. Set cluster.gpu_memory_gb for a run on GPUs elsewhere"
    )


def _learner(config: Config) -> tuple[int, int]:
    """Return the parameters of the policy, and what a learner rank holds of them between steps; 0 if not known."""
    if is_vla(config):
        towers = towers_memory(config)
        return (0, 0) if towers is None else (towers.parameters, towers.rank)
    if not is_text(config):
        return 0, 0
    decoder = picture_decoder_shape(config.policy)
    if decoder is not None:
        memory = estimate(config, decoder, 0)
        return memory.parameters, memory.learner
    parameters, kept = text_memory(config.policy) or (0, 0)
    return parameters, kept // (config.learner.num_workers if config.learner.backend == "fsdp" else 1)
