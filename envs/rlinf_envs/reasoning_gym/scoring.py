"""Scores by the families' own functions: those that only compare texts here, all others in worker processes.

Some families parse the response as a formula or run it. A response is what a policy writes, so such a call gets a
process and a deadline.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rlinf_envs.reasoning_gym.families import Family, make_family
from rlinf_envs.reasoning_gym.refusals import refused
from rlinf_envs.workers import WorkerPool

_HARMLESS = frozenset({
    "utils", "compute_decimal_reward", "strip", "lower", "upper", "replace", "split", "splitlines", "join",
    "isinstance", "str", "len", "dict", "list", "set", "float", "max", "min", "abs", "zip", "sum", "all", "any",
    "enumerate", "startswith", "endswith", "ValueError", "Exception",
})  # fmt: skip
"""Names that a scoring function may use without being suspected of parsing or running the answer."""


def is_cheap(family: Family) -> bool:
    """Whether the family's scoring function calls nothing but comparisons of text and numbers."""
    return set(type(family).score_answer.__code__.co_names) <= _HARMLESS


class FamilySpec:
    """The arguments that make a family again in another process."""

    def __init__(
        self,
        task: str,
        *,
        seed: int,
        size: int,
        params: Mapping[str, Any] | None,
        curriculum: Mapping[str, Any] | None,
    ) -> None:
        self.family = make_family(task, seed=seed, size=size, params=params, curriculum=curriculum)
        self.task = task
        self.cheap = is_cheap(self.family)
        # Parameters are plain YAML values; as text they are a key that a cache can hold.
        self.recipe = json.dumps([task, seed, size, dict(params or {}), dict(curriculum or {})], sort_keys=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FamilySpec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, type[Family]]:
        return self.recipe, type(self.family)


class FamilyScorer:
    """Scores answers of several families; None stands for an answer whose scoring did not end in time."""

    def __init__(self, *, workers: int, timeout_s: float) -> None:
        """
        Args:
            workers: processes for families that are not cheap; none starts before it is needed.
            timeout_s: deadline of one answer, in seconds.
        """
        self.pool = WorkerPool("rlinf_envs.reasoning_gym.score_worker:score", workers=workers, timeout_s=timeout_s)

    def score(self, rows: Sequence[tuple[FamilySpec, str, Mapping[str, Any]]]) -> list[float | None]:
        """Scores in [0, 1] of (family, answer, entry) rows, in order."""
        scores: list[float | None] = [None] * len(rows)
        distant = []
        for index, (spec, answer, entry) in enumerate(rows):
            if refused(spec.task, answer, entry):
                scores[index] = 0.0
            elif spec.cheap:
                scores[index] = float(spec.family.score_answer(answer, dict(entry)))
            else:
                distant.append(index)
        calls = [(rows[index][0].recipe, rows[index][1], dict(rows[index][2])) for index in distant]
        for index, outcome in zip(distant, self.pool.map(calls), strict=True):
            if outcome.status == "done":
                scores[index] = outcome.value
            elif outcome.status == "error":
                # The family's own function choked on the answer: nothing correct does that.
                scores[index] = 0.0
        return scores

    def close(self) -> None:
        """End the worker processes."""
        self.pool.close()
