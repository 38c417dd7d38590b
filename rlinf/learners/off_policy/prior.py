"""Recorded transitions in every update (RLPD: Ball et al., arXiv:2302.02948).

A fixed share of each update's transitions is drawn uniformly from the recorded ones, the rest from the run's
own buffer. A share of a half is "symmetric sampling". Nothing else changes: there is no imitation loss, and
no pretraining.
"""

from __future__ import annotations

import torch
from torch import Generator

from rlinf.data.batch import Batch
from rlinf.learners.off_policy.replay_buffer import ReplayBuffer, Transitions
from rlinf.schema import AlgorithmConfig


class PriorTransitions:
    """Recorded transitions, of which some enter each update."""

    def __init__(self, batch: Batch, algorithm: AlgorithmConfig, count: int) -> None:
        """``batch``: all of them in one row [1, T]; ``count``: how many enter an update."""
        self.count = count
        self._algorithm = algorithm
        self._buffer = ReplayBuffer(batch.num_positions)
        self._buffer.add(batch)

    def joined(self, own: Transitions, updates: int, generator: Generator, *, rank: int, size: int) -> Transitions:
        """``own`` transitions of some updates, end to end, with recorded ones behind those of each update.

        Both are of one rank among ``size``, which divides the transitions of either kind in an update.
        """
        recorded = self._buffer.sample(
            updates * self.count,
            gamma=self._algorithm.gamma,
            n_step=self._algorithm.n_step,
            generator=generator,
            rank=rank,
            size=size,
        )
        mine = own.split(len(own.rewards) // updates)
        theirs = recorded.split(len(recorded.rewards) // updates)
        parts = [part for pair in zip(mine, theirs, strict=True) for part in pair]
        return Transitions(
            inputs={name: torch.cat([part.inputs[name] for part in parts]) for name in parts[0].inputs},
            actions=torch.cat([part.actions for part in parts]),
            rewards=torch.cat([part.rewards for part in parts]),
            next_inputs={name: torch.cat([part.next_inputs[name] for part in parts]) for name in parts[0].next_inputs},
            discounts=torch.cat([part.discounts for part in parts]),
        )
