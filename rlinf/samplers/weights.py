"""Copies a weight update into a transformers model, in place and by name."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from rlinf.types import Metrics, WeightUpdate


class WeightUpdateError(ValueError):
    """An update that does not fit the model; the message names the weights."""


def copy_weights(model: nn.Module, update: WeightUpdate) -> Metrics:
    """Every tensor of ``update`` into the parameter (or buffer) of its name; seconds and bytes.

    Tied weights (one parameter under several names) need one of their names only. Nothing is copied unless all fits.

    Raises:
        WeightUpdateError: missing or unexpected names, or another shape.
    """
    started = time.perf_counter()
    targets: dict[str, Tensor] = model.state_dict(keep_vars=True)
    _check(model, targets, update)
    with torch.no_grad():
        for name, tensor in update.tensors.items():
            targets[name].copy_(tensor)
    moved = sum(tensor.numel() * tensor.element_size() for tensor in update.tensors.values())
    return {"weight_update_s": time.perf_counter() - started, "weight_update_bytes": float(moved)}


def _check(model: nn.Module, targets: dict[str, Tensor], update: WeightUpdate) -> None:
    given = update.tensors
    problems: list[str] = []
    unexpected = sorted(given.keys() - targets.keys())
    if unexpected:
        problems.append(f"the model has no weights named {_listed(unexpected)}")
    # A tied parameter appears under several names: it is missing when none of them is given.
    covered = {id(targets[name]) for name in given if name in targets}
    missing = sorted(name for name, parameter in model.named_parameters() if id(parameter) not in covered)
    if missing:
        problems.append(f"the update lacks {_listed(missing)}")
    shapes = [
        f"{name} {tuple(tensor.shape)} instead of {tuple(targets[name].shape)}"
        for name, tensor in given.items()
        if name in targets and tensor.shape != targets[name].shape
    ]
    if shapes:
        problems.append(f"other shapes than the model's: {_listed(shapes)}")
    if problems:
        raise WeightUpdateError(f"weight update {update.version} does not fit the model: " + "; ".join(problems))


def _listed(names: list[str], limit: int = 8) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
