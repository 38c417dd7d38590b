"""The rank of a reward model's learner as the driver calls it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from rlinf.train.workers.learner_worker import LearnerWorker

if TYPE_CHECKING:
    from rlinf.learners.reward import RewardLearner


class RewardWorker(LearnerWorker):
    """A learner that can start from the policy's weights."""

    def __init__(self, learner: RewardLearner, *, rank: int) -> None:
        super().__init__(learner, rank=rank)
        self._reward_learner = learner

    def adopt(self, weights: Mapping[str, Tensor]) -> None:
        """Start from a language model's weights; the head stays."""
        self._reward_learner.adopt(weights)
