"""Episodes of several branches: each has one reward and counts once, however many rows it left."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rlinf.algorithms.scan import last_true
from rlinf.data.batch import Batch
from rlinf.data.messages import Metrics

_SAME = 1e-5


def over_episodes(batch: Batch, prepare: Callable[[Batch], tuple[Batch, Metrics]]) -> tuple[Batch, Metrics]:
    """``prepare`` on one row of each episode; its advantage, shared equally, goes to all rows of the episode.

    Raises:
        ValueError: an episode has several branches, and ``prepare`` gave tokens of a row different advantages: there is
            none for the tokens of the other branches.
    """
    first, episode, branches = _episodes(batch)
    if len(first) == batch.num_rows:
        return prepare(batch)
    prepared, metrics = prepare(batch.select(first))
    assert prepared.advantages is not None
    assert prepared.returns is not None
    level = torch.where(last_true(prepared.mask), prepared.advantages, 0.0).sum(dim=1)
    uneven = torch.where(prepared.mask, prepared.advantages - level[:, None], 0.0).abs().amax(dim=1)
    if bool((uneven[branches > 1] > _SAME).any()):
        raise ValueError(
            "algorithm.adv_type gives tokens of an episode different advantages, and an agent's episode has several "
            "branches: choose one that compares whole episodes, such as grpo or rloo"
        )
    kept = prepared.mask.any(dim=1)[episode]
    mask = batch.mask & kept[:, None]
    advantages = torch.where(mask, (level / branches)[episode][:, None], 0.0)
    returns, alone = advantages.clone(), branches == 1
    advantages[first[alone]], returns[first[alone]] = prepared.advantages[alone], prepared.returns[alone]
    return batch.replace(mask=mask, advantages=advantages, returns=returns), metrics


def _episodes(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Find the first row of each episode, the episode of each row, and the rows of each episode."""
    assert batch.turn_credit.episode_ids is not None
    names = torch.stack([batch.group_ids, batch.turn_credit.episode_ids], dim=1)
    _, episode, branches = names.unique(dim=0, return_inverse=True, return_counts=True)
    rows = torch.arange(batch.num_rows)
    first = torch.full((len(branches),), batch.num_rows).scatter_reduce_(0, episode, rows, reduce="amin")
    return first, episode, branches
