"""Episodes inside rows: with ``auto_reset`` a row of T slots holds several, and each is its own trajectory."""

from __future__ import annotations

import torch
from torch import Tensor

from rlinf.algorithms.scan import episode_ends
from rlinf.types import Batch, Metrics


def mask_after_end(
    mask: Tensor, terminated: Tensor | None, truncated: Tensor | None, *, ignore_terminations: bool = False
) -> Tensor:
    """The mask of each row's first episode [B, T] (without ``auto_reset``): up to its ending slot, that included.

    >>> mask_after_end(torch.ones(1, 3).bool(), torch.tensor([[False, True, False]]), None)
    tensor([[ True,  True, False]])
    """
    ends = episode_ends(mask, terminated, truncated, ignore_terminations=ignore_terminations)
    return mask & ((ends.cumsum(dim=1) - ends.long()) == 0)


def split_episodes(batch: Batch, *, ignore_terminations: bool = False) -> Batch:
    """One row for every episode of every row, in order; none is thrown away, the unfinished last one included.

    Columns keep their slots: an episode's row has its own part of the mask and the row's ``group_ids``. Per-row
    ``rewards`` [B] of a row with more than one episode are a ValueError: nobody knows whose they are.
    """
    ends = episode_ends(batch.mask, batch.terminated, batch.truncated, ignore_terminations=ignore_terminations)
    number = ends.cumsum(dim=1) - ends.long()
    counts = torch.where(batch.mask, number, 0).amax(dim=1) + 1
    if batch.rewards.ndim == 1 and bool((counts > 1).any()):
        raise ValueError("rewards must be [B, T] where a row holds several episodes")
    rows = torch.arange(batch.num_rows, device=counts.device).repeat_interleave(counts)
    episode = torch.cat([torch.arange(int(count), device=counts.device) for count in counts]) if len(counts) else rows
    split = batch.select(rows)
    return split.replace(mask=split.mask & (number[rows] == episode[:, None]))


def episode_metrics(rewards: Tensor, success: Tensor, mask: Tensor) -> Metrics:
    """``success_once``, ``success_at_end``, ``return`` and ``episode_len``, means over rows that are one episode each.

    ``rewards`` [B, T], ``success`` bool [B, T] (the task is solved in this slot), ``mask`` [B, T]; empty rows do not
    count.

    >>> episode_metrics(torch.ones(1, 3), torch.tensor([[True, False, True]]), torch.tensor([[True, True, False]]))
    {'success_once': 1.0, 'success_at_end': 0.0, 'return': 2.0, 'episode_len': 2.0}
    """
    rows = mask.any(dim=1)
    if not bool(rows.any()):
        return {}
    position = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(mask, position, -1).amax(dim=1, keepdim=True).clamp(min=0)
    columns = {
        "success_once": (success & mask).any(dim=1),
        "success_at_end": (success & mask).gather(1, last).squeeze(1),
        "return": torch.where(mask, rewards, 0.0).sum(dim=1),
        "episode_len": mask.sum(dim=1),
    }
    return {name: float(column[rows].double().mean()) for name, column in columns.items()}
