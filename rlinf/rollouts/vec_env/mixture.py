"""Several tasks in one run (`env.tasks`): the task of each episode, and one environment that plays them all.

An episode's seed names its task: the seed is the task's number plus a multiple of the number of tasks. So all
code that starts episodes from seeds (rollouts, evaluations, demonstrations, films, other interpreters) has
the task without an argument for it. Equal seeds are equal tasks, and a group of equal starts never mixes two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import gymnasium
import numpy as np

from rlinf.rollouts.vec_env.vec_env import require_alike
from rlinf.schema.derived import task_name
from rlinf.schema.env import EnvConfig

_SEEDS = 2**31
"""Environments are reset with seeds below this."""
_INSTRUCT = "rlinf.rollouts.wrappers:Instruct"


@dataclass(frozen=True)
class Mixture:
    """The tasks of an environment, by number. Without tasks nothing is changed: seeds stay, and names are empty."""

    names: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()

    @classmethod
    def of(cls, options: EnvConfig) -> Self:
        """Read the mixture of `env.tasks`."""
        names = (task_name(task, number) for number, task in enumerate(options.tasks))
        return cls(tuple(names), tuple(task.weight for task in options.tasks))

    @property
    def seeds(self) -> int:
        """Seeds of one task's environment are below this."""
        return _SEEDS // max(1, len(self.names))

    def parted(self, seed: int) -> tuple[int, int]:
        """Split ``seed`` into the seed of the task's own environment and the task's number; 0 if there are no tasks."""
        return divmod(seed, max(1, len(self.names)))

    def name(self, seed: int) -> str:
        """Return the task of the episode that starts from ``seed``."""
        return self.names[seed % len(self.names)] if self.names else ""

    def drawn(self, seeds: Sequence[int], generator: np.random.Generator) -> list[int]:
        """Seeds that name tasks, one for each of ``seeds``: every task gets its share of them, rounded up or down.

        Which are rounded up, and the order, is up to ``generator``; in the mean each task has exactly its share.
        """
        if not self.names:
            return list(seeds)
        tasks = stratified(self.weights, len(seeds), generator)
        return [self._seed(seed, task) for seed, task in zip(seeds, tasks, strict=True)]

    def in_turn(self, seeds: Sequence[int]) -> list[int]:
        """Seeds that name one task after the other, whatever their weights."""
        return [self.nth(seed, number) for number, seed in enumerate(seeds)]

    def nth(self, seed: int, number: int) -> int:
        """Return ``seed`` as that of the ``number``-th episode, if tasks are played in turn."""
        return self._seed(seed, number % len(self.names)) if self.names else seed

    def _seed(self, seed: int, task: int) -> int:
        return seed % self.seeds * len(self.names) + task


ONE_TASK = Mixture()


def stratified(weights: Sequence[float], count: int, generator: np.random.Generator) -> list[int]:
    """``count`` numbers of tasks in random order, by systematic sampling: a task of weight w comes up ``count`` * w /
    sum times, rounded up or down, and exactly so often in the mean.

    >>> sorted(stratified([2.0, 1.0, 1.0], 8, np.random.default_rng(0)))
    [0, 0, 0, 0, 1, 1, 2, 2]
    """
    edges = np.cumsum(np.asarray(weights, dtype=np.float64))
    points = (np.arange(count) + generator.random()) * (edges[-1] / count)
    # Rounding must not lead beyond the last task, nor to one of weight 0.
    last = int(np.nonzero(np.asarray(weights) > 0)[0][-1])
    tasks = np.minimum(np.searchsorted(edges, points, side="right"), last)
    return [int(task) for task in generator.permutation(tasks)]


def task_options(options: EnvConfig, number: int) -> EnvConfig:
    """Return the environment of one task alone."""
    task = options.tasks[number]
    wrappers = list(options.wrappers)
    if task.instruction is not None:
        longest = max(len((other.instruction or "").encode()) for other in options.tasks)
        wrappers.insert(0, {_INSTRUCT: {"instruction": task.instruction, "max_length": longest}})
    return replace(options, tasks=[], kwargs={**options.kwargs, **task.kwargs}, wrappers=wrappers)


class MixtureEnv(gymnasium.Env):
    """One environment for all tasks: a reset's seed selects which is played. A task's own is made when it first is.

    Without a seed the task is drawn, all with equal probability.
    """

    def __init__(self, makers: Sequence[Callable[[], gymnasium.Env]]) -> None:
        self._makers = makers
        self._made: dict[int, gymnasium.Env] = {}
        self._now = self._task(0)
        self.observation_space, self.action_space = self._now.observation_space, self._now.action_space
        self.metadata, self.render_mode = self._now.metadata, self._now.render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(_SEEDS)) if seed is None else seed
        inner, number = divmod(drawn, len(self._makers))
        self._now = self._task(number)
        return self._now.reset(seed=inner, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        return self._now.step(action)

    def render(self) -> Any:
        return self._now.render()

    def close(self) -> None:
        for env in self._made.values():
            env.close()

    def has_wrapper_attr(self, name: str) -> bool:
        return self._now.has_wrapper_attr(name)

    def get_wrapper_attr(self, name: str) -> Any:
        """Return the attribute of the task that is being played."""
        return self._now.get_wrapper_attr(name)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        return self._now.set_wrapper_attr(name, value, force=force)

    def _task(self, number: int) -> gymnasium.Env:
        if number not in self._made:
            env = self._makers[number]()
            if self._made:
                first = self.observation_space, self.action_space
                require_alike(first, (env.observation_space, env.action_space), f"task {number} of env.tasks")
            self._made[number] = env
        return self._made[number]
