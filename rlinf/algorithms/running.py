"""Statistics of the rewards of a whole run; part of every checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor


@dataclass
class RunningStatistics:
    """Mean and deviation of everything seen so far, merged batch by batch (Chan, Golub and LeVeque 1979).

    >>> import torch
    >>> seen = RunningStatistics()
    >>> seen.update(torch.tensor([1., 2.])); seen.update(torch.tensor([3.]))
    >>> seen.mean, seen.std
    (2.0, 1.0)
    """

    count: float = 0.0
    mean: float = 0.0
    squares: float = 0.0
    """The sum of squared deviations from the mean."""

    @property
    def std(self) -> float:
        """Unbiased; 1 under two samples."""
        return (self.squares / (self.count - 1)) ** 0.5 if self.count >= 2 else 1.0

    def update(self, values: Tensor) -> None:
        """Take in ``values`` [N]."""
        values = values.detach().double()
        count = float(len(values))
        if count == 0:
            return
        mean = float(values.sum()) / count
        squares = float(((values - mean) ** 2).sum())
        total = self.count + count
        shift = mean - self.mean
        self.squares += squares + shift**2 * self.count * count / total
        self.mean += shift * count / total
        self.count = total


@dataclass
class RewardState:
    """The running statistics of every domain (one, named "", if a batch has no domains)."""

    domains: dict[str, RunningStatistics] = field(default_factory=dict)

    def of(self, domain: str) -> RunningStatistics:
        return self.domains.setdefault(domain, RunningStatistics())

    def state_dict(self) -> dict[str, dict[str, float]]:
        return {name: dict(vars(statistics)) for name, statistics in self.domains.items()}

    def load_state_dict(self, state: Mapping[str, Mapping[str, float]]) -> None:
        self.domains = {name: RunningStatistics(**values) for name, values in state.items()}
