"""Several text environments as one: task ``t`` of a mixture of m is task ``t // m`` of environment ``t % m``."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from rlinf.rollouts.text.conversation import graded_rows
from rlinf.rollouts.text.demonstrated import Demonstration
from rlinf.rollouts.text.envs.make_env import TextEnvError


class MixedTextEnv:
    """Fits what :class:`rlinf.rollouts.text.env_worker.TextEnvWorker` needs of an environment.

    Every conversation is answered by its own environment, with rewards and turns of its own, concurrently with
    the others: environments that can't be called from several threads are called one row at a time.
    """

    def __init__(self, members: Mapping[str, Any]) -> None:
        """``members``: environments by name.

        Raises:
            TextEnvError: one of them steps all its conversations at once, which rows that run free can't wait for.
        """
        for name, env in members.items():
            if not hasattr(env, "step_row") and not getattr(env, "steps_in_part", False):
                raise TextEnvError(
                    f"env.tasks: {name} steps all of its conversations at once (it has no step_row, and steps_in_part "
                    "is not true), so it can't be part of a mixture."
                )
        self.members = members
        self._envs = list(members.values())
        self._locks = [threading.Lock() for _ in self._envs]
        self._rows: list[tuple[int, int]] = []
        """Row -> its environment, and which row it is there."""
        self.max_turns = max(int(getattr(env, "max_turns", 1)) for env in self._envs)
        self.num_tasks = len(self._envs) * max(int(env.num_tasks) for env in self._envs)
        """Ids below it: those beyond the end of a smaller environment begin it again."""
        self.skipped_rows = sum(int(getattr(env, "skipped_rows", 0)) for env in self._envs)
        self.data_notes = {
            f"{name}: {label}": note
            for name, env in members.items()
            for label, note in getattr(env, "data_notes", {}).items()
        }

    @property
    def num_envs(self) -> int:
        return len(self._rows)

    def resize(self, num_envs: int) -> None:
        """Make room for ``num_envs`` conversations; the next call must be :meth:`reset`."""
        self._rows = [(0, 0)] * num_envs

    def prompt(self, task_id: int) -> str:
        """Return the first observation of a task."""
        number, own = self._own(task_id)
        return str(self._envs[number].prompt(own))

    def demonstrations(self, task_ids: Sequence[int]) -> list[Demonstration]:
        """Return a correct conversation about each task.

        Raises:
            ValueError: an environment has none.
        """
        for name, env in self.members.items():
            if not hasattr(env, "demonstrations"):
                raise ValueError(f"{type(env).__name__} of {name} has no method demonstrations(task_ids)")
        return [
            Demonstration.of(one)
            for number, own in map(self._own, task_ids)
            for one in self._envs[number].demonstrations([own])
        ]

    def difficulties(self, task_ids: Sequence[int], by: str) -> list[float]:
        """How hard each task is by its own environment's measure: tasks are compared within their environment alone.

        Raises:
            TextEnvError: an environment can't tell.
        """
        results = []
        for number, own in map(self._own, task_ids):
            env = self._envs[number]
            if not hasattr(env, "difficulties"):
                name = list(self.members)[number]
                raise TextEnvError(f"data.curriculum.by: {name} of env.tasks does not report how hard its tasks are.")
            results += env.difficulties([own], by)
        return results

    def reset(self, *, options: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Start the conversations of ``options["task_ids"]`` [num_envs]."""
        tasks: list[list[int]] = [[] for _ in self._envs]
        for row, (number, own) in enumerate(map(self._own, options["task_ids"])):
            self._rows[row] = (number, len(tasks[number]))
            tasks[number].append(own)
        started: list[tuple[Sequence[str], Mapping[str, Any]]] = []
        for env, own_tasks in zip(self._envs, tasks, strict=True):
            if own_tasks and env.num_envs != len(own_tasks):
                env.resize(len(own_tasks))
            started.append(env.reset(options={"task_ids": own_tasks}) if own_tasks else ((), {}))
        infos = {
            name: [str(started[number][1][name][own]) for number, own in self._rows] for name in ("domain", "answer")
        }
        return tuple(started[number][0][own] for number, own in self._rows), infos

    def step_row(
        self, row: int, response: str, *, cut: bool = False
    ) -> tuple[str, float, bool, bool, Mapping[str, Any]]:
        """Make the step of one conversation, for a thread of its own."""
        number, own = self._rows[row]
        env = self._envs[number]
        if hasattr(env, "step_row"):
            stepped: tuple[str, float, bool, bool, Mapping[str, Any]] = env.step_row(own, response, cut=cut)
            return stepped
        with self._locks[number]:
            if hasattr(env, "mark_cut"):
                env.mark_cut([own] if cut else [])
            actions: list[str | None] = [None] * env.num_envs
            actions[own] = response
            (feedback,) = graded_rows(env.step(tuple(actions)), [own])
        return (
            feedback.observation,
            feedback.reward,
            feedback.ended and not feedback.truncated,
            feedback.truncated,
            feedback.facts,
        )

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _own(self, task_id: int) -> tuple[int, int]:
        """Its environment, and which task it is there."""
        own, number = divmod(int(task_id), len(self._envs))
        return number, own % int(self._envs[number].num_tasks)
