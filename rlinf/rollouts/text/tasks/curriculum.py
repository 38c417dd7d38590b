"""Easy tasks first: which tasks a run may draw, by the difficulty that their environment reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlinf.data.messages import Metrics
from rlinf.rollouts.text.conversation import Row, TextEnvs
from rlinf.schema.derived import RolloutSections
from rlinf.schema.env import CurriculumConfig

Difficulties = Callable[[Sequence[int]], Sequence[float]]
"""How hard each of these training tasks is; larger is harder."""

_MEASURED = 512
"""Tasks of an environment whose difficulties are measured to estimate the quantiles of all of its tasks."""


class Curriculum:
    """The share of each environment's tasks, the easiest first, that is open.

    It grows with the groups drawn (`data.curriculum.steps`; the square-root competence of arXiv:1903.09848), or by
    `start` after each batch that was answered well (`data.curriculum.accuracy`). Tasks as hard as the hardest that is
    open are open too, so a difficulty of few values opens more than the share.
    """

    def __init__(
        self, options: CurriculumConfig, sizes: Sequence[int], difficulties: Difficulties, *, groups: int
    ) -> None:
        """``sizes``: how many tasks each environment has; ``groups`` [groups per iteration]."""
        self._options, self._sizes, self._difficulties = options, list(sizes), difficulties
        self._groups = groups
        self._least = options.start
        """The share that is open at least: what adaptive steps, and a lack of easier tasks, have come to."""
        self._drawn = options.start
        self._scales: dict[int, list[float]] = {}

    def share(self, draw: int) -> float:
        """Return the share that is open at draw ``draw`` of a run."""
        if self._options.accuracy is None:
            done = draw / (self._options.steps * self._groups)
            self._drawn = max(self._least, _competence(done, self._options.start))
        else:
            self._drawn = self._least
        return self._drawn

    def warm_share(self, done: float) -> float:
        """Return the share that is demonstrated after the share ``done`` of a warm start."""
        until = self._options.warm_start
        return _competence(done / until, self._options.start) if until else 1.0

    def open(self, task_ids: Sequence[int], share: float) -> list[bool]:
        """Which of these tasks are among the easiest ``share`` of their environment's."""
        if share >= 1 or not task_ids:
            return [True] * len(task_ids)
        result = self._difficulties(task_ids)
        members = len(self._sizes)
        # The difficulty up to which an environment's tasks are open.
        return [
            hard <= hardest_of(self.scale(task % members), share) for task, hard in zip(task_ids, result, strict=True)
        ]

    def widen(self) -> float:
        """Open more, if all tasks that are open are too long or rest; return the new share."""
        self._least = self._drawn = min(1.0, max(self._least, self._drawn) + self._options.start)
        return self._least

    def note(self, rows: Sequence[Row]) -> None:
        """Record how a batch was answered. Lost rows do not count."""
        answered = [row for row in rows if not row.lost]
        requested = self._options.accuracy
        if requested is None or not answered:
            return
        if sum(row.verdict == "correct" for row in answered) >= requested * len(answered):
            self._least = min(1.0, self._least + self._options.start)

    def metrics(self) -> Metrics:
        """Return the share that was open at the last draw."""
        return {"curriculum/share": self._drawn}

    def scale(self, member: int) -> list[float]:
        """Return the difficulties of an environment's tasks, or of a sample evenly over them, in ascending order.

        Raises:
            UserError: the environment can't report them.
        """
        if member not in self._scales:
            size = self._sizes[member]
            count = min(size, _MEASURED)
            indices = [index * size // count for index in range(count)]
            ids = [index * len(self._sizes) + member for index in indices]
            self._scales[member] = sorted(self._difficulties(ids))
        return self._scales[member]

    def state_dict(self) -> dict[str, Any]:
        return {"least": self._least}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._least = float(state["least"])


def curriculum_of(config: RolloutSections, envs: TextEnvs, sizes: Sequence[int]) -> Curriculum | None:
    """Build the curriculum over the training tasks; None if `data.curriculum.by` requests none."""
    options = config.data.curriculum
    by = options.by
    if by is None:
        return None
    return Curriculum(
        options, sizes, lambda tasks: envs.difficulties("train", tasks, by), groups=config.rollout.batch_size
    )


def hardest_of(scale: Sequence[float], share: float) -> float:
    """Return the largest difficulty among the easiest ``share`` of ``scale``, which ascends; its first one at least.

    >>> hardest_of([1.0, 2.0, 2.0, 5.0], 0.5)
    2.0
    """
    return scale[max(0, math.ceil(share * len(scale)) - 1)]


def _competence(done: float, start: float) -> float:
    """Compute the share of open tasks after the share ``done`` of the curriculum: its square grows evenly to 1.

    >>> [round(_competence(done, 0.1), 2) for done in (0.0, 0.25, 0.5, 1.0, 2.0)]
    [0.1, 0.51, 0.71, 1.0, 1.0]
    """
    return min(1.0, math.sqrt(done * (1 - start**2) + start**2))
