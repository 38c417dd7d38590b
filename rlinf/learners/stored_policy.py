"""The policy's weights out of a learner's checkpoint, without the learner."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlinf.base.errors import UserError

Shapes = Mapping[str, tuple[int, ...]]


class WeightsMismatch(UserError):
    """A checkpoint is of another network; the message names the first weights that differ."""


def load_policy(folder: Path, policy: Any) -> None:
    """Load the weights that a PyTorch learner, sharded or not, saved into ``folder``; its optimiser is left out."""
    policy.load_state_dict(_stored_weights(folder, policy.state_dict()))


def _stored_weights(folder: Path, weights: dict[str, Any]) -> dict[str, Any]:
    """Read the weights in ``folder``, under the names and in the shapes of ``weights``, which may be overwritten.

    Raises WeightsMismatch if names or shapes differ.
    """
    if is_sharded(folder):
        require_same_weights(shapes(weights), _sharded_shapes(folder))
        from torch.distributed import checkpoint  # a CPU-second that whole checkpoints are spared

        checkpoint.load({"policy": weights}, checkpoint_id=folder / "fsdp", no_dist=True)
        return weights
    results: dict[str, Any] = torch.load(folder / "learner.pt", map_location="cpu", weights_only=True)["policy"]
    require_same_weights(shapes(weights), shapes(results))
    return results


def stored_shapes(folder: Path) -> Shapes:
    """Name -> shape of the weights that a PyTorch learner saved."""
    if is_sharded(folder):
        return _sharded_shapes(folder)
    result = torch.load(folder / "learner.pt", map_location="cpu", weights_only=True, mmap=True)
    return shapes(result["policy"])


def is_sharded(folder: Path) -> bool:
    """Whether a learner with `backend: fsdp` wrote it."""
    return (folder / "fsdp").is_dir()


def shapes(weights: Mapping[str, Any]) -> Shapes:
    """Name -> shape."""
    return {name: tuple(value.shape) for name, value in weights.items() if isinstance(value, Tensor)}


def _sharded_shapes(folder: Path) -> Shapes:
    """Read the shapes of a sharded checkpoint's weights from its metadata alone."""
    from torch.distributed.checkpoint import FileSystemReader

    entries = FileSystemReader(folder / "fsdp").read_metadata().state_dict_metadata
    results = {name.removeprefix("policy."): entry for name, entry in entries.items() if name.startswith("policy.")}
    return {name: tuple(entry.size) for name, entry in results.items() if hasattr(entry, "size")}


def require_same_weights(here: Shapes, stored: Shapes) -> None:
    """Raise WeightsMismatch if a checkpoint's weights have other names or shapes than the policy's."""
    differ = [
        f"{name} is {_written(stored.get(name))} in the checkpoint and {_written(here.get(name))} here"
        for name in sorted({*here, *stored})
        if here.get(name) != stored.get(name)
    ]
    if differ:
        more = f", and {len(differ) - 3} more" if len(differ) > 3 else ""
        raise WeightsMismatch(
            f"the checkpoint is of another network: {'; '.join(differ[:3])}{more}. Observations, actions, vocabulary "
            "and the keys of policy have to be those of the run that wrote it."
        )


def _written(shape: tuple[int, ...] | None) -> str:
    return "absent" if shape is None else str(list(shape))
