"""Which tasks a run draws: fixed shares of its environments, in each one's order those that fit, are open and don't
rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlinf.base.errors import UserError
from rlinf.rollouts.text.tasks.curriculum import Curriculum
from rlinf.rollouts.text.tasks.mixture_schedule import MixtureSchedule
from rlinf.rollouts.text.tasks.order import TaskOrder
from rlinf.rollouts.text.tasks.pool import TaskPool

Fits = Callable[[Sequence[int]], Sequence[bool]]
"""Which of these tasks have a prompt that is short enough."""


class TaskDraws:
    """Draw g of a run belongs to an environment (:class:`MixtureSchedule`) and is that one's next task that is wanted.

    Task ids name the environment too: of m environments, id t is task ``t // m`` of environment ``t % m``. What is
    passed over is counted for each environment, so its shares stay exact. With one environment, draw g is position
    g plus what was passed over, of the task order.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        weights: Sequence[float],
        *,
        seed: int,
        shuffle: bool,
        max_prompt_length: int,
        pool: TaskPool | None = None,
        curriculum: Curriculum | None = None,
    ) -> None:
        """``sizes``: how many tasks each environment has, by its name. ``max_prompt_length`` [tokens] is what fits."""
        self.curriculum = curriculum
        self._names, self.pool, self._max_prompt_length = list(sizes), pool, max_prompt_length
        self._shares = MixtureSchedule(weights)
        alone = len(sizes) == 1
        self._orders = [
            TaskOrder(size, seed=seed, shuffle=shuffle, stream="tasks" if alone else f"tasks of {name}")
            for name, size in sizes.items()
        ]
        self._passed = [0] * len(sizes)

    @property
    def passed(self) -> int:
        """Tasks that were passed over so far."""
        return sum(self._passed)

    def draw(self, first: int, count: int, fits: Fits, *, round: int = 0, keep: bool = True) -> tuple[list[int], int]:
        """Return the tasks of draws ``first`` to ``first + count - 1``, and how many did not fit on the way to them.

        ``keep``: later draws go on behind what was passed over.

        Raises:
            UserError: an environment has no task that fits.
        """
        members = [self._shares.member(index) for index in range(first, first + count)]
        share = self.curriculum.share(first) if self.curriculum is not None else 1.0
        drawn: dict[int, list[int]] = {}
        long = 0
        for member in sorted(set(members)):
            start = self._shares.before(member, first) + self._passed[member]
            needed = members.count(member)
            drawn[member], passed, too_long = self._of_member(
                member, start, needed, fits, round, share=share, keep=keep
            )
            long += too_long
            if keep:
                self._passed[member] += passed
        return [drawn[member].pop(0) for member in members], long

    def require_fitting(self, member: int, fits: Fits) -> None:
        """Raise UserError if an environment has no task that fits."""
        self._of_member(member, 0, 1, fits, 0, share=1.0, keep=False)

    def _of_member(
        self, member: int, start: int, needed: int, fits: Fits, round: int, *, share: float, keep: bool
    ) -> tuple[list[int], int, int]:
        """Draw (the first ``needed`` wanted tasks from position ``start`` on, all that were passed over, those too
        long)."""
        order, count = self._orders[member], len(self._orders)
        results: list[int] = []
        passed = long = 0
        since = 0
        """Tasks passed over since the last that was found, or since resting ones were woken."""
        while len(results) < needed:
            position = start + len(results) + passed
            own = order.tasks(position, needed - len(results), round=round)
            candidates = [task * count + member for task in own]
            # A draw that is not kept leaves the rest of a task as long as it is.
            rests = None if self.pool is None else self.pool.visit if keep else self.pool.rests
            awake = self._open([task for task in candidates if rests is None or not rests(task)], share)
            good = fits(awake) if awake else ()
            taken = [task for task, fitting in zip(awake, good, strict=True) if fitting]
            long += len(awake) - len(taken)
            results += taken
            passed += len(candidates) - len(taken)
            since = 0 if taken else since + len(candidates)
            if since > order.num_tasks and share < 1 and self.curriculum is not None:
                share, since = self.curriculum.widen(), 0
            elif since > order.num_tasks:
                if self.pool is None or not self.pool.wake(member, count):
                    raise UserError(
                        f"data.max_prompt_length {self._max_prompt_length}: every prompt of "
                        f"{self._names[member] or 'the dataset'} is longer. Raise it, or shorten the prompts."
                    )
                since = 0
        return results, passed, long

    def _open(self, tasks: list[int], share: float) -> list[int]:
        """Those that are easy enough by now."""
        if self.curriculum is None:
            return tasks
        return [task for task, is_open in zip(tasks, self.curriculum.open(tasks, share), strict=True) if is_open]

    def state_dict(self) -> dict[str, Any]:
        """Return the state that later draws depend on in addition to their numbers."""
        state: dict[str, Any] = {"passed": list(self._passed)}
        if self.pool is not None:
            state["pool"] = self.pool.state_dict()
        if self.curriculum is not None:
            state["curriculum"] = self.curriculum.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._passed = list(state["passed"])
        if self.pool is not None and "pool" in state:
            self.pool.load_state_dict(state["pool"])
        if self.curriculum is not None and "curriculum" in state:
            self.curriculum.load_state_dict(state["curriculum"])
