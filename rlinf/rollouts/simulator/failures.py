"""How often the environments of a worker failed, and from when on that ends the run."""

from __future__ import annotations

from collections import Counter
from typing import Literal

Attempt = Literal["reset", "step"]
# One or two failures may be a start state's; more than this before anything went well are the environment's.
_FEW = 3


class EnvFailureError(RuntimeError):
    """Environments failed more often than `env.max_failures` allows, or never did anything else."""


class FailureCount:
    """Of some lanes. Where no reset, or no step, ever went well, a few failures are enough, one for each lane.

    Resets are judged by resets: the first step waits until all lanes are reset, however often some of them fail to be.
    """

    def __init__(self, max_failures: int, num_lanes: int) -> None:
        self.total = 0
        self._most = max_failures
        self._most_in_vain = min(max_failures, max(_FEW, num_lanes))
        self._in_vain: Counter[Attempt] = Counter()
        self._went_well: set[Attempt] = set()

    @property
    def stepped(self) -> bool:
        """Whether a step ever went well, here or in the process that this one goes on from."""
        return "step" in self._went_well

    def take_over(self, stepped: bool) -> None:
        """Goes on from another process, whose environments have ``stepped`` or not."""
        self._went_well = {"reset", "step"} if stepped else set()

    def went_well(self, attempt: Attempt, count: int) -> None:
        """So many resets or steps did."""
        if count:
            self._went_well.add(attempt)

    def add(self, attempt: Attempt, last: str, account: str) -> None:
        """One failure: ``last`` says what went wrong in a word or two, ``account`` is its traceback.

        Raises:
            EnvFailureError: that was one too many.
        """
        self.total += 1
        self._in_vain[attempt] += 1
        look = f"`rlinf check` with the same file looks for what is wrong with it. The last one:\n{account}"
        if attempt not in self._went_well and self._in_vain[attempt] > self._most_in_vain:
            raise EnvFailureError(
                f"the environment never made a single step: {self._in_vain[attempt]} {attempt}s failed (last: {last}), "
                f"and none went well. {look}"
            )
        if self.total > self._most:
            raise EnvFailureError(
                f"environments failed {self.total} times (last: {last}), more than env.max_failures allows. {look}"
            )
