"""The facts by which ranks of a learner make advantages of their own rows, where an estimator reads no others."""

from __future__ import annotations

from dataclasses import dataclass

from rlinf.config.schema import AlgorithmConfig


@dataclass(frozen=True)
class Moments:
    """Mean and deviation of all valid positions of a batch: whitening subtracts ``mean`` and divides by ``scale``."""

    mean: float
    scale: float


@dataclass(frozen=True)
class Estimation:
    """How advantages are made of the columns of any rows of a batch."""

    algorithm: AlgorithmConfig
    """With the ``kl_coef`` of this training iteration."""
    moments: Moments | None = None
    """Where advantages are whitened: known once all rows have been looked at."""
