"""From the decisions of a batch to its positions (`rlinf.granularity`), a bounded number of them at a time."""

from __future__ import annotations

import torch
from torch import Tensor


def in_place(parts: list[Tensor], places: tuple[Tensor, ...], mask: Tensor) -> Tensor:
    """The positions [n, P] of decisions, in pieces laid end to end, as [B, T]; 0 where the mask is false."""
    if not parts:
        return torch.zeros(mask.shape, device=mask.device)
    column = torch.cat(parts)
    width = column.shape[1]
    table = column.new_zeros(mask.shape[0], mask.shape[1] // width, width).index_put(places, column).flatten(1)
    return torch.where(mask, table, 0.0)
