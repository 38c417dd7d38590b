"""An agent as a text environment: its only response is the address at which it finds the policy.

``env.id: agent:module:function``. The function receives a task and the policy's address, and returns the
reward::

    def solve(task, *, base_url, api_key, model):
        client = OpenAI(base_url=base_url, api_key=api_key)
        ...
        return 1.0

It may be a coroutine function. It may return a mapping with ``reward`` and other facts of the episode
(``verdict``, ``reward/<term>``). A tool, a network or a mistake of its own that ends or hangs it costs its
episode.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlinf.base.errors import UserError
from rlinf.base.reward_value import reward_value
from rlinf.base.user_code import Signature, imported
from rlinf.schema.derived import AGENT

_PROMPTS = ("prompt", "question", "instruction")


class TaskRows:
    """The tasks of an agent, and which of them each conversation is about."""

    def __init__(self, tasks: Sequence[Mapping[str, Any]]) -> None:
        self._tasks = tasks
        self._rows: list[int] = []

    @property
    def num_tasks(self) -> int:
        return len(self._tasks)

    @property
    def num_envs(self) -> int:
        return len(self._rows)

    def resize(self, num_envs: int) -> None:
        self._rows = [0] * num_envs


class AgentEnv(TaskRows):
    """Fits what :class:`rlinf.rollouts.text.env_worker.TextEnvWorker` needs of an environment."""

    max_turns = 1
    """Of the environment: an episode is one run of the agent, which makes at most `env.max_turns` calls."""

    def __init__(self, env_id: str, *, tasks: str, options: Mapping[str, Any] | None = None) -> None:
        """
        Args:
            env_id: ``agent:module:function``.
            tasks: a JSONL file with one task a line, or ``module:function`` of a function that returns a list of them;
                a task is a mapping, with a prompt under ``prompt`` or ``question`` for people to read.
            options: further keyword arguments of the agent.

        Raises:
            UserError: there is no such function, or there are no tasks.
        """
        self._options = dict(options or {})
        call = Signature(("a task",), ("base_url", "api_key", "model", *self._options))
        self._agent = _function(env_id.removeprefix(AGENT), "env.id", call)
        super().__init__(_tasks(tasks))

    def prompt(self, task_id: int) -> str:
        """Return the task as text for people."""
        task = self._tasks[task_id]
        return next((str(task[name]) for name in _PROMPTS if name in task), json.dumps(task))

    def demonstrations(self, task_ids: Sequence[int]) -> list[tuple[str, str]]:
        """(prompt, response) of tasks that have a ``response``."""
        for task_id in task_ids:
            if "response" not in self._tasks[task_id]:
                raise ValueError(f"task {task_id} has no `response`")
        return [(self.prompt(task_id), str(self._tasks[task_id]["response"])) for task_id in task_ids]

    def reset(self, *, options: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
        self._rows = list(options["task_ids"])
        tasks = [self._tasks[task_id] for task_id in self._rows]
        domains = np.array([str(task.get("domain", "agent")) for task in tasks], dtype=object)
        answers = np.array([str(task.get("answer", "")) for task in tasks], dtype=object)
        return tuple(map(self.prompt, self._rows)), {"domain": domains, "answer": answers}

    def step_row(self, row: int, response: str, *, cut: bool = False) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Run the agent about the row's task. ``response``: base_url, api_key and model, as JSON."""
        outcome = self._agent(dict(self._tasks[self._rows[row]]), **json.loads(response), **self._options)
        if inspect.isawaitable(outcome):
            outcome = asyncio.run(_awaited(outcome))
        facts = dict(outcome) if isinstance(outcome, Mapping) else {"reward": outcome}
        reward = reward_value(facts.pop("reward", None))
        facts.setdefault("verdict", "correct" if reward > 0 else "wrong")
        return "", reward, True, False, facts

    def close(self) -> None:
        """Nothing to end: an agent ends with its episode."""


async def _awaited(outcome: Any) -> Any:
    return await outcome


def _function(name: str, key: str, call: Signature) -> Callable[..., Any]:
    if ":" not in name:
        raise UserError(f"{key}: {name!r} names no function: write module:function")
    try:
        result: Callable[..., Any] = imported(name)
    except ValueError as error:
        raise UserError(f"{key}: {error}") from error
    misfit = call.misfit(result)
    if misfit:
        raise UserError(f"{key}: {name} {misfit}")
    return result


def _tasks(source: str) -> list[Mapping[str, Any]]:
    path = Path(source).expanduser()
    if path.suffix in (".jsonl", ".ndjson"):
        try:
            tasks = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
        except (OSError, ValueError) as error:
            raise UserError(f"env.kwargs.tasks: {source}: {error}") from error
    else:
        tasks = list(_function(source, "env.kwargs.tasks", Signature())())
    if not tasks or not all(isinstance(task, Mapping) for task in tasks):
        raise UserError(f"env.kwargs.tasks: {source} must give mappings, one for each task, and at least one")
    return tasks
