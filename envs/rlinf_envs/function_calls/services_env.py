"""``rlinf/FunctionServices-v0``: the leaderboard's tasks of several turns, with the package's simulated services."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gymnasium

from rlinf_envs.errors import DatasetError, SettingError
from rlinf_envs.function_calls.files import TASKS, Form, accepted, data_folder, described, rows
from rlinf_envs.function_calls.services import MODULES, Services
from rlinf_envs.spaces import FreeText
from rlinf_envs.splits import check_split, in_split
from rlinf_envs.suggest import unknown
from rlinf_envs.tools.calls import CALL_FORM, ToolCall, calls_in, written
from rlinf_envs.typed import typed

CATEGORIES = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context")
_DESCRIPTIONS = "multi_turn_func_doc"
_ABOUT_SERVICE = " Tool description: "
_INSTRUCTION = (
    f"Do what is asked by calling functions, each as {CALL_FORM}. Their results come back to you; go on until all is "
    "done, then say so without a call."
)
_FURTHER = "There are further functions now. What about it?"
_DONE = "Done."
_CANNOT = "None of the functions does that, or something is missing."


@dataclass(frozen=True)
class _Task:
    category: str
    services: tuple[str, ...]
    start: Mapping[str, Any]
    requests: tuple[str, ...]
    """Messages of the user, turn by turn."""
    accepted: tuple[tuple[str, ...], ...]
    """Calls that do it, in Python's form; none where it can't be done."""
    functions: str
    """Descriptions of what can be called from the start."""


class FunctionServicesEnv(gymnasium.Env[str, str]):
    """A user makes one request after the other; calls of functions change the state of services.

    A turn ends with a response without calls. The leaderboard's rule judges it: it is right if the services are
    in the state that the accepted calls lead to and their results have been seen. Each right turn pays its share
    of 1; the first wrong one ends the conversation.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]  # gymnasium's, of each instance
    observation_space = FreeText()
    action_space = FreeText()

    @typed
    def __init__(
        self,
        *,
        categories: Sequence[str] = ("multi_turn_base",),
        turns: int | None = None,
        others: int | None = None,
        services: Sequence[str] | None = None,
        form: Form = "schema",
        split: str = "all",
        eval_fraction: float = 0.2,
    ) -> None:
        """
        Args:
            categories: of the leaderboard; each is a domain of the metrics.
            turns: only the first turns of each task; by default all (up to 8).
            others: how many functions that the task does not need are described in addition to those that it needs;
                by default all that its services have.
            services: only tasks that use no others, by the names of :data:`~.services.MODULES`.
            form: ``schema`` shows the whole description of a function, ``signature`` its arguments and their types.
            split, eval_fraction: as for ``rlinf/Math-v0``; tasks that begin with the same words fall into the same.

        Raises:
            SettingError: an unknown category or service.
            DatasetError: the package bfcl-eval is not there, or no task is left.
        """
        for name, known, what in ((categories, CATEGORIES, "category"), (services or (), MODULES, "service")):
            for one in name:
                if one not in known:
                    raise SettingError(unknown(what, one, known))
        if (turns is not None and turns < 1) or (others is not None and others < 0):
            raise SettingError(f"turns must be positive and others not negative, got {turns} and {others}")
        requested = check_split(split, eval_fraction)
        self._tasks = [
            task
            for category in categories
            for task in _tasks(data_folder(), category, turns, others, form)
            if in_split(task.requests[0], requested, eval_fraction) and set(task.services) <= set(services or MODULES)
        ]
        if not self._tasks:
            raise DatasetError(f"no task of {', '.join(categories)} in the split {split}")
        self.num_tasks = len(self._tasks)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(self.num_tasks))
        self._task = task = self._tasks[int((options or {}).get("task_id", drawn))]
        self._services, self._model = (
            Services(task.services, task.start, long_context="long_context" in task.category) for _ in range(2)
        )
        self._returned: Counter[str] = Counter()
        self._turn, self._called = 0, False
        prompt = f"Functions:\n{task.functions}\n\n{_INSTRUCTION}\n\n{task.requests[0]}"
        return prompt, {"domain": task.category, "answer": json.dumps(task.accepted)}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        calls = calls_in(action)
        if calls:
            answers = [self._services.answer(call) for call in calls]
            self._returned.update(answers)
            self._called |= any(not call.problem for call in calls)
            return "\n".join(answers), 0.0, False, False, {"role": "tool"}
        if not self._right():
            return "", 0.0, True, False, {"success": False}
        self._turn, self._called = self._turn + 1, False
        ended, reward = self._turn == len(self._task.requests), 1 / len(self._task.requests)
        return "" if ended else self._task.requests[self._turn], reward, ended, False, {"success": ended}

    def demonstrate(self, observation: str) -> str:
        """Return the accepted calls of a turn at once, then that it is done."""
        requested = self._wanted()
        if self._called or not requested:
            return _DONE if requested else _CANNOT
        return "".join(written(call.name, call.arguments) for call in requested)

    def _wanted(self) -> list[ToolCall]:
        return [self._model.read(expression) for expression in self._task.accepted[self._turn]]

    def _right(self) -> bool:
        """Whether the turn has done what the accepted calls do."""
        requested = self._wanted()
        if not requested:
            return True
        returned = Counter(self._model.answer(call) for call in requested)
        return self._called and self._services.state == self._model.state and returned <= self._returned


@functools.lru_cache(maxsize=len(CATEGORIES) * 2)
def _tasks(folder: Path, category: str, turns: int | None, others: int | None, form: Form) -> list[_Task]:
    """Shared by all conversations of a process."""
    answers = accepted(folder, category)
    functions = {service: rows(folder / _DESCRIPTIONS / f"{module}.json") for service, module in MODULES.items()}
    return [
        _task(row, answers[row["id"]], category, functions, turns, others, form)
        for row in rows(folder / TASKS.format(category))
    ]


def _task(
    row: Mapping[str, Any],
    answers: Sequence[Sequence[str]],
    category: str,
    functions: Mapping[str, Sequence[Mapping[str, Any]]],
    turns: int | None,
    others: int | None,
    form: Form,
) -> _Task:
    answers = answers[:turns]
    needed = {call.partition("(")[0] for turn in answers for call in turn}
    later = {int(turn): names for turn, names in row.get("missed_function", {}).items()}
    known = {one["name"]: one for service in row["involved_classes"] for one in functions[service]}
    held_back = {name for names in later.values() for name in names}
    unneeded = [name for name in known if name not in needed | held_back][:others]
    shown = [name for name in known if name in {*needed, *unneeded} - held_back]
    requests = []
    for turn, messages in enumerate(row["question"][:turns]):
        question = "\n\n".join(message["content"] for message in messages)
        requests.append(question or f"{_written(known, later.get(turn, ()), form)}\n\n{_FURTHER}")
    return _Task(
        category,
        tuple(row["involved_classes"]),
        row["initial_config"],
        tuple(requests),
        tuple(map(tuple, answers)),
        _written(known, shown, form),
    )


def _written(known: Mapping[str, Mapping[str, Any]], names: Sequence[str], form: Form) -> str:
    """Descriptions, without what those of one service have in common and what they return."""
    lines = []
    for name in names:
        own = known[name]["description"].rpartition(_ABOUT_SERVICE)[2]
        function = {"name": name, "description": own, "parameters": known[name]["parameters"]}
        lines.append(described(function, form))
    return "\n".join(lines)
