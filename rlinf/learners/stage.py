"""What a learner does for a while: an objective, an optimiser, and how each batch is cut."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlinf.algorithms.objective import Objective
from rlinf.types import Batch


@dataclass(frozen=True)
class Stage:
    """A supervised warm start is one stage, reinforcement learning the next; each starts a new optimiser."""

    name: str
    objective: Objective
    lr: float
    critic_lr: float | None = None
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    grad_clip: float = 1.0
    schedule: str = "constant"
    warmup_steps: int = 0
    min_lr_ratio: float = 0.0
    steps: int = 1
    """Batches of this stage; with epochs and minibatches they give the schedule's length."""
    epochs: int = 1
    minibatches: int = 1
    early_stop_imp_ratio: float | None = None
    reference: bool = False
    """Keep a copy of the weights at the stage's start as the reference policy."""

    @property
    def optimizer_steps(self) -> int:
        return self.steps * self.epochs * self.minibatches

    @property
    def old_is_current(self) -> bool:
        """With one optimiser step per batch the proximal policy is the current one: nothing to recompute."""
        return self.epochs * self.minibatches == 1


@dataclass(frozen=True)
class FixedColumns:
    """What an optimiser step fixes before its first forward pass, for all rows of the minibatch; each [B, T]."""

    weights: Tensor
    """Of each slot in the loss."""
    value_weights: Tensor | None
    """Of each slot in the critic's error, where several share a value."""
    selected: Tensor | None
    """bool: the slots that a covariance loss treats apart."""

    @classmethod
    def of(cls, objective: Objective, mini: Batch) -> FixedColumns:
        """Raises ValueError for a batch without advantages."""
        if mini.advantages is None:
            raise ValueError("the batch has no advantages: prepare it first")
        proximal = mini.old_logprobs if mini.old_logprobs is not None else mini.logprobs
        return cls(
            objective.weights(mini.mask),
            objective.weights(mini.mask, shared=mini.reward_slots) if mini.reward_slots > 1 else None,
            objective.select(old_logprobs=proximal, advantages=mini.advantages, mask=mini.mask),
        )

    def select(self, rows: Tensor, device: torch.device) -> FixedColumns:
        """The rows at ``rows``, on ``device``."""

        def picked(column: Tensor | None) -> Tensor | None:
            return None if column is None else column[rows].to(device)

        return FixedColumns(self.weights[rows].to(device), picked(self.value_weights), picked(self.selected))
