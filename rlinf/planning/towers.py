"""How much memory the towers of a vla or flow policy need, from their architectures alone.

Heads, projections and queries are left out, which are small compared with towers of real size, and so are
activations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rlinf.config.derived import acts_in, keeps_reference, uses_openvla, uses_pi0, uses_published
from rlinf.config.experiment import Config
from rlinf.models.architecture_numbers import decoder_shape, read_architecture
from rlinf.schema import PolicyConfig, TowerConfig

_WEIGHT, _TRAINED = 4, 12
"""Bytes of a float32 weight; of its gradient and Adam's two moments."""
_VIT = ("hidden_size", "intermediate_size", "num_hidden_layers", "patch_size")


@dataclass(frozen=True)
class _TowersMemory:
    """Numbers of weights, and bytes."""

    parameters: int
    trained: int
    """0 with `policy.lora`, whose adapters are small."""
    rank: int
    """Of a learner rank between two micro-batches."""
    host: int
    """Of it, while the policy acts, on the host."""
    acting: int
    """Of all copies of the policy that act."""


def towers_memory(config: Config) -> _TowersMemory | None:
    """Estimate the towers' memory; None if an architecture is unknown, or not given (the default towers are tiny)."""
    vla, policy, ranks = config.policy.vla, config.policy, config.learner.num_workers
    language, vision = _decoder_parameters(vla.language), _vision_parameters(vla.vision)
    whole_model = policy.path is not None or any(uses(config) for uses in (uses_pi0, uses_published, uses_openvla))
    if language is None or vision is None or whole_model:
        return None
    trained = 0
    if policy.lora.rank == 0:
        trained = language * (not vla.language.freeze) + vision * (not vla.vision.freeze)
    whole, parts = language + vision, ranks if config.learner.backend == "fsdp" else 1
    weights, state = whole * _WEIGHT // parts, trained * _TRAINED // parts
    reference = trained * _WEIGHT // parts if keeps_reference(config) else 0
    offload = config.learner.offload
    acting = config.rollout.num_samplers if acts_in(config) == "sampler" else config.env.num_workers
    on_host = reference if config.learner.backend == "fsdp" else 0
    return _TowersMemory(
        parameters=whole,
        trained=trained,
        rank=weights + state + reference - on_host,
        host=weights * offload.weights + state * offload.optimizer + on_host,
        acting=acting * whole * _WEIGHT,
    )


def _decoder_parameters(tower: TowerConfig) -> int | None:
    """Count the weights of a decoder without an output layer, which a tower does not have; None for an unknown one."""
    written = _written(tower, "text_config")
    decoder = decoder_shape(PolicyConfig(architecture=dict(written)))
    return None if decoder is None or "vocab_size" not in written else replace(decoder, tied=True).parameters


def _vision_parameters(tower: TowerConfig) -> int | None:
    """Count the weights of a vision transformer with biases and learned positions (SigLIP); None for another one."""
    written = _written(tower, "vision_config")
    numbers = [written.get(name) for name in _VIT]
    hidden, inner, layers, patch = (number if isinstance(number, int) else 0 for number in numbers)
    if written.get("model_type") != "siglip_vision_model" or not all((hidden, inner, layers, patch)):
        return None
    size = written.get("image_size")
    positions = (size // patch) ** 2 if isinstance(size, int) else 0
    attention, norms = 4 * (hidden * hidden + hidden), 4 * hidden
    layer = attention + norms + 2 * hidden * inner + inner + hidden
    pooled = 0
    if written.get("vision_use_head", True):
        pooled = hidden + attention + 2 * hidden + 2 * hidden * inner + inner + hidden
    return layers * layer + (3 * patch * patch + 1 + positions) * hidden + 2 * hidden + pooled


def _written(tower: TowerConfig, part: str) -> Mapping[str, object]:
    """Read the architecture of a tower; of a checkpoint with several the fitting ``part``."""
    whole = read_architecture(PolicyConfig(path=tower.path, architecture=tower.architecture))
    inner = whole.get(part)
    return inner if isinstance(inner, dict) else whole
