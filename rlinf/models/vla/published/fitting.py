"""Comparison of a published checkpoint's tensors with those of its network, by names and shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from rlinf.models.loading import PolicyError, load_tokenizer
from rlinf.models.vla.published.checkpoint import FlowCheckpoint
from rlinf.models.vla.published.groot_checkpoint import GrootCheckpoint
from rlinf.models.vla.published.groot_network import GrootNetwork, own_groot_names
from rlinf.models.vla.published.networks import NETWORKS, own_names
from rlinf.models.vla.published.openvla_checkpoint import OpenVlaCheckpoint
from rlinf.models.vla.published.openvla_network import OpenVlaNetwork

Shapes = Mapping[str, Sequence[int]]


def tensor_problems(own: Shapes, stored: Shapes, names: Mapping[str, str]) -> dict[str, list[str]]:
    """Compare the network's ``own`` tensors with those ``stored`` for them, both by the network's names.

    Returns what is missing, not read and of another shape by the checkpoint's names, to which ``names`` leads.
    """
    return {
        "missing": sorted(names.get(name, name) for name in own.keys() - stored.keys()),
        "not read": sorted(names.get(name, name) for name in stored.keys() - own.keys()),
        "of another shape": sorted(
            names.get(name, name) for name in own.keys() & stored.keys() if list(own[name]) != list(stored[name])
        ),
    }


def load_tensors(
    network: nn.Module, tensors: Mapping[str, Tensor], *, source: str, names: Mapping[str, str] | None = None
) -> None:
    """Load ``tensors`` by the network's names; ``names``: from these to the checkpoint's, for messages.

    Raises PolicyError, which begins with ``source``, if any is missing, left over or of another shape.
    """
    own, stored = (
        {name: tensor.shape for name, tensor in part.items()} for part in (network.state_dict(), dict(tensors))
    )
    for problem, listed in tensor_problems(own, stored, names or {}).items():
        if listed:
            more = "" if len(listed) == 1 else f" and {len(listed) - 1} more"
            raise PolicyError(f"{source}: {listed[0]}{more} {problem}")
    network.load_state_dict(tensors)


def unfit_tensors(checkpoint: FlowCheckpoint | GrootCheckpoint | OpenVlaCheckpoint) -> dict[str, list[str]]:
    """Find the tensors that loading would refuse, by problem, without reading any.

    Raises PolicyError if a size cannot be read off, or without the tokenizer that splits SmolVLA's words.
    """
    try:
        with torch.device("meta"):
            network, names = _network(checkpoint)
    except KeyError as error:
        raise PolicyError(f"tensor {error} is missing, off which a size is read") from error
    own = {name: tensor.shape for name, tensor in network.state_dict().items()}
    stored = {own_name: checkpoint.shapes[name] for name, own_name in names.items()}
    prefix = checkpoint.prefix if isinstance(checkpoint, GrootCheckpoint) else ""
    return tensor_problems(own, stored, {own_name: prefix + name for name, own_name in names.items()})


def _network(checkpoint: FlowCheckpoint | GrootCheckpoint | OpenVlaCheckpoint) -> tuple[nn.Module, dict[str, str]]:
    """Make the network, and map the checkpoint's names of tensors to its own."""
    if isinstance(checkpoint, GrootCheckpoint):
        return GrootNetwork(checkpoint), own_groot_names(checkpoint)
    if isinstance(checkpoint, FlowCheckpoint):
        tokenizer = load_tokenizer(str(checkpoint.tokenizer)) if checkpoint.family == "smolvla" else None
        return NETWORKS[checkpoint.family](checkpoint, tokenizer), own_names(checkpoint)
    left_out = set(checkpoint.without_effect())
    return OpenVlaNetwork(checkpoint), {name: name for name in checkpoint.shapes if name not in left_out}
