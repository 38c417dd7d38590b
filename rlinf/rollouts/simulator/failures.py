"""How often the environments of a worker failed, and from when on that ends the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal

from rlinf.base.errors import UserError

Attempt = Literal["reset", "step"]
_HOW = {
    "failures": "by an error",
    "timeouts": "by not returning in time",
    "nan": "by a number that is NaN or infinite",
}
"""How an attempt failed, in words, by its kind (`vec_env.FAILURE_KINDS`)."""
# One or two failures may be a start state's; more than this before anything went well are the environment's.
_FEW = 3
_CHECK_HINT = "`rlinf check` with the same file searches for the cause."


class EnvFailureError(UserError):
    """Environments failed more often than `env.max_failures` allows, or never did anything else."""


def too_many_failures(env_id: str, counted: str, most: int, account: str) -> EnvFailureError:
    """Build the error for more failures than `env.max_failures`; ``counted``: how many, ``account``: the newest."""
    return EnvFailureError(
        f"{env_id}: {account}\nThat is the newest failure: {counted}, and env.max_failures allows {most}. {_CHECK_HINT}"
    )


def counted_failures(failures: Mapping[str, int]) -> str:
    """Put failures by kind into words.

    >>> counted_failures({"failures": 2, "timeouts": 0, "nan": 1})
    '3 failed (2 by an error, 1 by a number that is NaN or infinite)'
    """
    kinds = ", ".join(f"{count} {_HOW[kind]}" for kind, count in failures.items() if count)
    return f"{sum(failures.values())} failed ({kinds})"


class FailureCount:
    """Counts failures of some sub-environments. If no reset, or no step, ever went well, one for each is enough.

    Resets are judged by resets: the first step waits until all are reset, however often some of them fail to be.
    """

    def __init__(self, max_failures: int, num_envs: int, env_id: str) -> None:
        self.total = 0
        self._env_id = env_id
        self._most = max_failures
        self._longest_streak = min(max_failures, max(_FEW, num_envs))
        self._failures_in_a_row: Counter[Attempt] = Counter()
        self._went_well: set[Attempt] = set()

    @property
    def stepped(self) -> bool:
        """Whether a step ever went well, here or in the process that this one goes on from."""
        return "step" in self._went_well

    def take_over(self, stepped: bool) -> None:
        """Continue from another process, whose environments have ``stepped`` or not."""
        self._went_well = {"reset", "step"} if stepped else set()

    def expect_together(self, count: int) -> None:
        """Allow ``count`` failures before the first success, if that many run together."""
        self._longest_streak = min(self._most, max(self._longest_streak, count))

    def went_well(self, attempt: Attempt, count: int) -> None:
        """Count resets or steps that did not fail."""
        if count:
            self._went_well.add(attempt)

    def add(self, attempt: Attempt, kind: str, account: str, env: str = "") -> None:
        """Count one failure of a kind; ``account`` is what was raised, and its origin.

        Args:
            env: which environment it was, as `environment 3`; empty if that is of no use.

        Raises:
            EnvFailureError: that was one too many.
        """
        self.total += 1
        newest = f"the last one{env and ' in '}{env} {_HOW[kind]}"
        self._failures_in_a_row[attempt] += 1
        if attempt not in self._went_well and self._failures_in_a_row[attempt] > self._longest_streak:
            raise EnvFailureError(
                f"{self._env_id}: {account}\nThe environment never made a single step: "
                f"{self._failures_in_a_row[attempt]} {attempt}s failed, {newest}, and none went well. {_CHECK_HINT}"
            )
        if self.total > self._most:
            raise too_many_failures(self._env_id, f"{self.total} failed, {newest}", self._most, account)
