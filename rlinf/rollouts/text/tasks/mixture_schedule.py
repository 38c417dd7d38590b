"""Which environment of a mixture each group of a run belongs to: a fixed sequence that keeps the weights' shares."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

_FINEST = 10**6
"""Denominator of a share at most: weights are written by people."""


class MixtureSchedule:
    """The sequence of Tijdeman (The chairman assignment problem, 1980).

    After any number of groups, each environment has had its share of them to within less than one group.

    >>> [MixtureSchedule([2.0, 1.0, 1.0]).member(number) for number in range(8)]
    [0, 1, 2, 0, 0, 1, 2, 0]
    """

    def __init__(self, weights: Sequence[float]) -> None:
        """Raise ValueError if no weight is above 0, or one is below."""
        if any(weight < 0 for weight in weights) or not any(weights):
            raise ValueError(f"weights must be at least 0, and one of them above: {list(weights)}")
        fractions = [Fraction(weight).limit_denominator(_FINEST) for weight in weights]
        self._shares = [weight / sum(fractions) for weight in fractions]
        self._members: list[int] = []
        self._counts = [[0] for _ in weights]
        """For each environment: how many groups it has among the first 0, 1, 2, ..."""

    def member(self, number: int) -> int:
        """Return the environment of the group with this number."""
        if len(self._shares) == 1:
            return 0
        self._extend(number + 1)
        return self._members[number]

    def before(self, member: int, number: int) -> int:
        """Count how many of the first ``number`` groups the environment has."""
        if len(self._shares) == 1:
            return number
        self._extend(number)
        return self._counts[member][number]

    def _extend(self, length: int) -> None:
        """Add the task that has to go first, among those that do not get ahead of their share."""
        slack = Fraction(1, 2 * len(self._shares) - 2)
        while len(self._members) < length:
            groups = len(self._members) + 1
            deadlines = [
                ((counts[-1] + 1 - slack) / share, number)
                for number, (share, counts) in enumerate(zip(self._shares, self._counts, strict=True))
                if share > 0 and share * groups - counts[-1] >= slack
            ]
            chosen = min(deadlines)[1]
            self._members.append(chosen)
            for number, counts in enumerate(self._counts):
                counts.append(counts[-1] + (number == chosen))
