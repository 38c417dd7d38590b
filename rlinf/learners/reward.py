"""The learner of a reward model: the PyTorch one, over labels instead of advantages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from rlinf.algorithms.objective import Objective
from rlinf.learners.stage import Stage
from rlinf.learners.torch import TorchLearner
from rlinf.schema import OptimizerConfig


class RewardLearner(TorchLearner):
    """One optimiser step an update; with advantage 1 ``-A logp`` is the binary cross-entropy of the labels."""

    def __init__(self, model: Any, *, lr: float, seed: int, micro_batch_tokens: int, device: Any = "cpu") -> None:
        stage = Stage("reward_model", Objective.of("reinforce"), OptimizerConfig(lr=lr))
        super().__init__(model, stages=(stage,), seed=seed, micro_batch_tokens=micro_batch_tokens, device=device)

    def adopt(self, weights: Mapping[str, Tensor]) -> None:
        """Start from a language model's weights; the head stays."""
        self.policy.adopt(weights)
