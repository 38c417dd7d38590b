"""The facts by which ranks of a learner make advantages of their own rows, wherever the other rows are."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from rlinf.schema import AlgorithmConfig


@dataclass(frozen=True)
class MeanStd:
    """Mean and deviation of all valid positions of a batch: whitening subtracts ``mean`` and divides by ``scale``."""

    mean: float
    scale: float


@dataclass(frozen=True, eq=False)
class GroupNumbers:
    """Numbers of every group of a batch, all [G]: a row is compared by them with rows that are elsewhere."""

    groups: Tensor
    """int64, ascending."""
    mean: Tensor
    """float64, of the outcomes or of the rewards of steps (`entries.Estimator.compares`), and ..."""
    std: Tensor
    """... their standard deviation."""
    size: Tensor
    """float64: rows."""
    constant: Tensor
    """bool: all outcomes are the same."""


@dataclass(frozen=True)
class BatchStatistics:
    """Facts about all rows for those who have some of them; None where nobody asks for it."""

    rewards: MeanStd | None = None
    """Of the rewards of positions (``whiten_rewards``)."""
    advantages: MeanStd | None = None
    """Before they are whitened."""
    peers: GroupNumbers | None = None


@dataclass(frozen=True)
class AdvantageSpec:
    """How advantages are made of the columns of any rows of a batch."""

    algorithm: AlgorithmConfig
    """With the ``kl_coef`` of this training iteration."""
    whole: BatchStatistics = field(default_factory=BatchStatistics)
    known: bool = False
    """`Batch.processed_rewards` are already what the estimator gives all tokens of a row or a turn: what follows it is
    left."""
