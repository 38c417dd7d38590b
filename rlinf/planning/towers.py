"""How much memory the towers of a vla or flow policy need, from their architectures alone.

Formulas count the usual ones; others are made without memory for their weights, on torch's device "meta". Heads,
projections and queries are left out, which are small compared with towers of real size, and so are activations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rlinf.config.derived import acts_in, keeps_reference, uses_openvla, uses_pi0, uses_published
from rlinf.config.experiment import Config
from rlinf.models.architecture_numbers import decoder_shape, read_architecture
from rlinf.planning.counted import counted, with_vocabulary
from rlinf.planning.memory import TRAINED_BYTES, WEIGHT_BYTES
from rlinf.schema import PolicyConfig, TowerConfig

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
    """Estimate the towers' memory; None if an architecture is unknown, or none is given (the default towers are tiny).

    Those of published checkpoints and of exported policies are not counted."""
    policy, ranks = config.policy, config.learner.num_workers
    if policy.path is not None or uses_published(config) or uses_openvla(config):
        return None
    counts = {key: _parameters(policy, key, tower) for key, tower in towers_of(config).items()}
    if not counts or None in counts.values():
        return None
    known = {key: count or 0 for key, count in counts.items()}
    trained = 0
    if policy.lora.rank == 0:
        trained = sum(known[key] for key, tower in towers_of(config).items() if not tower.freeze)
    whole, parts = sum(known.values()), ranks if config.learner.backend == "fsdp" else 1
    weights, state = whole * WEIGHT_BYTES // parts, trained * TRAINED_BYTES // parts
    reference = trained * WEIGHT_BYTES // parts if keeps_reference(config) else 0
    offload = config.learner.offload
    acting = config.rollout.num_samplers if acts_in(config) == "sampler" else config.env.num_workers
    on_host = reference if config.learner.backend == "fsdp" else 0
    return _TowersMemory(
        parameters=whole,
        trained=trained,
        rank=weights + state + reference - on_host,
        host=weights * offload.weights + state * offload.optimizer + on_host,
        acting=acting * whole * WEIGHT_BYTES,
    )


def towers_of(config: Config) -> dict[str, TowerConfig]:
    """Return the towers whose architecture is given, by their key."""
    policy = config.policy
    whole = {"policy.flow.pi0": policy.flow.pi0}
    parts = {"policy.vla.language": policy.vla.language, "policy.vla.vision": policy.vla.vision}
    named = (whole if uses_pi0(config) else parts).items()
    return {key: tower for key, tower in named if tower.path is not None or tower.architecture}


def _parameters(policy: PolicyConfig, key: str, tower: TowerConfig) -> int | None:
    """Count the weights of a tower; None if its architecture cannot be made, or is not on this machine."""
    written = _written(tower, {"policy.vla.language": "text_config", "policy.vla.vision": "vision_config"}.get(key))
    if tower.path is None and key == "policy.vla.language":
        written = with_vocabulary(policy, written)
    formula = _vision_parameters(written) if key == "policy.vla.vision" else _decoder_parameters(written)
    return counted(written, causal=False) if formula is None else formula


def _decoder_parameters(written: Mapping[str, object]) -> int | None:
    """Count the weights of a decoder without an output layer, which a tower does not have; None for an unknown one."""
    decoder = decoder_shape(PolicyConfig(architecture=dict(written)))
    return None if decoder is None or "vocab_size" not in written else replace(decoder, tied=True).parameters


def _vision_parameters(written: Mapping[str, object]) -> int | None:
    """Count the weights of a vision transformer with biases and learned positions (SigLIP); None for another one."""
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


def _written(tower: TowerConfig, part: str | None) -> Mapping[str, object]:
    """Read the architecture of a tower; of a checkpoint with several the fitting ``part``, if one is named."""
    whole = read_architecture(PolicyConfig(path=tower.path, architecture=tower.architecture))
    inner = whole.get(part or "")
    return inner if isinstance(inner, dict) else whole
