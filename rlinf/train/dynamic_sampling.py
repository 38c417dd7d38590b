"""Dynamic sampling: rollouts until enough groups have something to compare (DAPO, arXiv 2503.14476)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from rlinf.algorithms.filters import dynamic_sampling
from rlinf.data.batch import Batch
from rlinf.data.messages import Metrics
from rlinf.data.remote_rows import RemoteRows, join_rows

_SUMMED = {"rollout/tokens", "rollout/env_steps"}
"""Metrics of a rollout by which a step's speed is measured."""


def collect_nonconstant_groups(
    collect: Callable[[int], tuple[Batch | RemoteRows, Metrics]], *, groups: int, max_rounds: int
) -> tuple[Batch | RemoteRows, Metrics]:
    """Collect the first ``groups`` groups whose members differ in reward, from at most ``1 + max_rounds`` rollouts.

    Fewer if there are no more; the first rollout as it is if there is none at all. ``collect`` takes the number
    of the round, from 0.
    """
    batch, metrics = collect(0)
    kept = [_varied(batch)]
    rounds = 0
    while sum(len(batch.group_ids.unique()) for batch in kept) < groups and rounds < max_rounds:
        more, again = collect(rounds + 1)
        for name in _SUMMED & again.keys():
            metrics[name] += again[name]
        offset = int(torch.cat([part.group_ids for part in (batch, *kept)]).max()) + 1
        kept.append(_varied(more.replace(group_ids=more.group_ids + offset)))
        rounds += 1
    full = join_rows([part for part in kept if part.num_rows] or [batch])
    chosen = full.group_ids.unique()[:groups]
    full = full.select(torch.isin(full.group_ids, chosen).nonzero()[:, 0])
    counts = {"dynamic_sampling/rounds": float(rounds), "dynamic_sampling/groups": float(len(chosen))}
    return full, {**metrics, **counts}


def _varied(batch: Batch | RemoteRows) -> Batch | RemoteRows:
    outcomes = batch.rewards if batch.rewards.ndim == 1 else batch.rewards.sum(dim=1)
    return batch.select(dynamic_sampling(outcomes, batch.group_ids).nonzero()[:, 0])
