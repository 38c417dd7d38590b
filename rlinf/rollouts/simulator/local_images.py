"""Images of a rollout, separate from its batch: they stay where they were made until a learner rank needs them."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from rlinf.data.inputs import ObservationInputs, picked
from rlinf.rollouts.simulator.records import RolloutPart

Leaves = dict[str, Tensor]
"""By their names in `ObservationInputs.named`: [n, ...], the n decisions of a batch in its order."""

_IMAGE_BYTES = 1024
"""Bytes of a decision from which they stay with the worker. Smaller ones cost less than references to them."""


def keep_images_local(part: RolloutPart) -> tuple[RolloutPart, Leaves]:
    """Replace the images of the part by their positions; return both, or the part as it is if there are none."""
    batch = part.batch
    if batch is None:
        return part, {}
    inputs = ObservationInputs.of(batch.inputs)
    images = {
        name: leaf
        for name, leaf in inputs.named().items()
        if leaf.dtype == torch.uint8 and leaf.shape[2:].numel() >= _IMAGE_BYTES
    }
    if not images:
        return part, {}
    decided = batch.decided
    # Of a batch without padding no picture is copied.
    at = None if bool(decided.all()) else decided.nonzero(as_tuple=True)
    leaves = {name: leaf.flatten(0, 1) if at is None else picked(leaf, *at) for name, leaf in images.items()}
    refs = torch.where(decided, decided.flatten().cumsum(0).view(decided.shape) - 1, -1)
    return replace(part, batch=batch.replace(inputs=inputs.with_row_refs(images, refs))), leaves
