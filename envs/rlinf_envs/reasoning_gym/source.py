"""Tasks by id, drawn from one family or a weighted mixture, of one split."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rlinf_envs.errors import SettingError
from rlinf_envs.reasoning_gym.families import generate
from rlinf_envs.reasoning_gym.scoring import FamilySpec
from rlinf_envs.splits import Split, in_split
from rlinf_envs.suggest import reject_unknown
from rlinf_envs.tasks import Task
from rlinf_envs.typed import misfits

_CACHE = 65_536
_EVAL_DRAWS = 4
"""Evaluation questions are searched for in this multiple of the positions that should hold ``size`` of them."""
_COMPONENT = "mixture_index"
"""Column of a task's row: which entry of the mixture made it."""
_EXAMPLES = ("example_answer", "example_correct_answer", "possible_answer")
"""What families call an answer in their metadata that is one of many."""
_UNLUCKY = 1e-9
"""Share of training tasks that may have no question in their split."""


def positions(size: int, split: Split, eval_fraction: float) -> int:
    """How many source positions are drawn on for ``size`` tasks: the size that the families are reported to have."""
    if split == "all":
        return size
    if split == "eval":
        return math.ceil(size * _EVAL_DRAWS / eval_fraction)
    return size * math.ceil(math.log(_UNLUCKY) / math.log(eval_fraction))


@dataclass(frozen=True)
class Component:
    """One family of a mixture."""

    weight: float
    spec: FamilySpec


def make_components(
    task: str | None,
    tasks: Sequence[Mapping[str, Any]],
    *,
    seed: int,
    size: int,
    params: Mapping[str, Any] | None,
    curriculum: Mapping[str, Any] | None,
) -> list[Component]:
    """Build the families of a mixture, or the single family ``task`` as a mixture of one.

    Raises:
        SettingError: not exactly one of ``task`` and ``tasks``, an unknown key, a weight that is not positive.
    """
    if (task is None) == (not tasks):
        raise SettingError("give either task: NAME or tasks: [{task: NAME, weight: W, params: {...}}, ...]")
    if task is not None:
        return [Component(1.0, FamilySpec(task, seed=seed, size=size, params=params, curriculum=curriculum))]
    if params or curriculum:
        raise SettingError("params and curriculum belong inside each entry of tasks")
    components = []
    for index, entry in enumerate(tasks):
        reject_unknown(f"key of tasks[{index}]", entry, ("task", "weight", "params", "curriculum"))
        wrong = misfits(_component, entry, f"tasks[{index}].")
        if wrong:
            raise SettingError("; ".join(wrong))
        if "task" not in entry or not float(entry.get("weight", 1.0)) > 0:
            raise SettingError(f"tasks[{index}] needs a task and a positive weight, got {dict(entry)}")
        components.append(_component(**entry, seed=seed, size=size))
    return components


def _component(
    *,
    task: str,
    weight: float = 1.0,
    params: Mapping[str, Any] | None = None,
    curriculum: Mapping[str, Any] | None = None,
    seed: int,
    size: int,
) -> Component:
    """One entry of `tasks`."""
    return Component(float(weight), FamilySpec(task, seed=seed, size=size, params=params, curriculum=curriculum))


class GeneratedTasks:
    """``size`` tasks of a mixture in one split.

    Training tasks are generated on request: id k tries the source positions k, k + size, k + 2 size, ... until a
    question falls on the training split. Evaluation tasks are generated at once and are all different, so that an
    accuracy counts every question once; a small family may have fewer than ``size`` of them.
    """

    def __init__(
        self, components: Sequence[Component], *, seed: int, size: int, split: Split, eval_fraction: float
    ) -> None:
        self._components = tuple(components)
        self._seed, self._size, self._split, self._eval_fraction = seed, size, split, eval_fraction
        self._positions = positions(size, split, eval_fraction)
        # Per instance: a cache on the method itself would keep every environment alive.
        self._lazy = lru_cache(maxsize=_CACHE)(self._search)
        self._fixed = _distinct(self._components, seed, size, eval_fraction) if split == "eval" else None

    def __len__(self) -> int:
        return self._size if self._fixed is None else len(self._fixed)

    def task(self, task_id: int) -> Task:
        return self._lazy(task_id) if self._fixed is None else self._fixed[task_id]

    def family(self, task: Task) -> FamilySpec:
        """Return the family that made the task, with the parameters of its own entry of the mixture."""
        return self._components[task.row[_COMPONENT]].spec

    def _search(self, task_id: int) -> Task:
        for position in range(task_id, self._positions, self._size):
            task = _generate(self._components, self._seed, position, mixture_key=task_id)
            if in_split(task.question, self._split, self._eval_fraction):
                return task
        raise SettingError(
            f"found no {self._split} question for task {task_id}: the family has too few different questions"
        )


# One process may make the same environment several times, and 300 evaluation tasks are found among thousands of draws.
@lru_cache(maxsize=4)
def _distinct(components: tuple[Component, ...], seed: int, size: int, eval_fraction: float) -> tuple[Task, ...]:
    """Up to ``size`` different evaluation tasks."""
    tasks: dict[str, Task] = {}
    for position in range(positions(size, "eval", eval_fraction)):
        task = _generate(components, seed, position, mixture_key=position)
        if in_split(task.question, "eval", eval_fraction):
            tasks.setdefault(task.question, task)
        if len(tasks) == size:
            break
    if not tasks:
        raise SettingError("found no eval question: the family has too few questions for this eval_fraction")
    return tuple(tasks.values())


def _generate(components: tuple[Component, ...], seed: int, position: int, *, mixture_key: int) -> Task:
    index = 0
    if len(components) > 1:
        # Keyed by text, because seed + position would give neighbouring seeds the same sequence.
        choice = random.Random(f"mixture {seed} {mixture_key}")
        index = choice.choices(range(len(components)), weights=[one.weight for one in components])[0]
    spec = components[index].spec
    entry = generate(spec.family, f"{seed} {position}", position)
    return Task(
        question=str(entry["question"]), answer=_reference(entry), domain=spec.task, row={**entry, _COMPONENT: index}
    )


def _reference(entry: Mapping[str, Any]) -> str:
    """Return the answer of an entry, or the example of one in its metadata; an empty text if it has neither.

    Families that accept any of many answers may name none.
    """
    answers = [entry["answer"], *(entry["metadata"].get(name) for name in _EXAMPLES)]
    answer = next((one for one in answers if one is not None), "")
    return json.dumps(answer) if isinstance(answer, Mapping) else str(answer)
