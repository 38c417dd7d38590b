"""Where the reward of a batch comes from: the environment, which is done with it, or a model that learns."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from rlinf.interfaces import Rollout
from rlinf.train.workers.learner_pool import LearnerPool
from rlinf.types import Batch, Metrics


class Reward(Protocol):
    """Between rollout and algorithm."""

    def begin(self, rollout: Rollout, policy: LearnerPool) -> Metrics:
        """Before the first iteration."""

    def score(self, batch: Batch, step: int) -> tuple[Batch, Metrics]:
        """The batch with its rewards, after ``step`` finished iterations."""

    def refresh(self, iteration: int, rollout: Rollout) -> Metrics:
        """After ``iteration`` finished training iterations; samplers have their weights."""

    def save(self, folder: Path) -> None:
        """Writes what :meth:`load` continues from into ``folder``, which is the reward's alone."""

    def load(self, folder: Path) -> None:
        """Continues bit for bit where :meth:`save` stopped."""


class EnvironmentReward:
    """The environment has given it: nothing is left to do."""

    def begin(self, rollout: Rollout, policy: LearnerPool) -> Metrics:
        return {}

    def score(self, batch: Batch, step: int) -> tuple[Batch, Metrics]:
        return batch, {}

    def refresh(self, iteration: int, rollout: Rollout) -> Metrics:
        return {}

    def save(self, folder: Path) -> None:
        pass

    def load(self, folder: Path) -> None:
        pass
