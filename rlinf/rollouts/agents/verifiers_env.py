"""Tasksets of the package `verifiers` as an agent: ``env.id: verifiers:NAME``, played in an interpreter of their own.

The package pins other versions of transformers and mcp than ours, so a child process with the interpreter of
`env.python` (``make venvs/verifiers``) plays the episodes: the taskset's own prompts, tools, users and rewards. Its
model calls come to the run's endpoint like those of any agent.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import threading
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from rlinf.base.child_process import ChildProcess
from rlinf.base.errors import UserError
from rlinf.rollouts.agents.agent_env import TaskRows
from rlinf.schema.derived import VERIFIERS

_CHILD = Path(__file__).parent / "foreign" / "verifiers_child.py"
_MOST = 1000
# They would show the run's packages to the other interpreter.
_OURS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
_END_S = 3.0


class VerifiersEnv(TaskRows):
    """Fits what :class:`rlinf.rollouts.text.env_worker.TextEnvWorker` needs of an environment."""

    max_turns = 1
    """Of the environment: an episode makes at most `env.max_turns` calls."""

    def __init__(
        self,
        env_id: str,
        *,
        python: str,
        start_timeout_s: float,
        taskset: Mapping[str, Any] | None = None,
        environment: Mapping[str, Any] | None = None,
        first: int = 0,
        count: int = _MOST,
    ) -> None:
        """
        Args:
            env_id: ``verifiers:NAME``, the id of an installed taskset or of a module in the current folder.
            python: the interpreter that has the package.
            start_timeout_s: that loading the tasks may take; 0 sets no limit.
            taskset: its options. environment: further keys of the package's `env` block, such as `agent.harness`.
            first, count: which of its tasks, many tasksets have no end.

        Raises:
            UserError: the interpreter cannot be started, or the package refuses the taskset.
        """
        self._name = env_id.removeprefix(VERIFIERS)
        here, there = socket.socketpair()
        # Tasksets may lie in the current folder, and start programs of their own from there.
        variables = {name: value for name, value in os.environ.items() if name not in _OURS}
        variables["PYTHONPATH"] = os.getcwd()
        try:
            self._process = ChildProcess(
                [python, str(_CHILD), str(there.fileno())],
                name=f"the process of {env_id}",
                pass_fds=[there.fileno()],
                env=variables,
            )
        except OSError as error:
            raise UserError(f"env.python: {python} cannot be started: {error}. Run make venvs/verifiers.") from error
        finally:
            there.close()
        self.close = weakref.finalize(self, _end, self._process, here)
        """Ends the process."""
        self._socket, self._writing = here, threading.Lock()
        self._numbers = itertools.count()
        self._awaited: dict[int, Future[dict[str, Any]]] = {}
        config = {**(environment or {}), "taskset": {**(taskset or {}), "id": self._name}}
        self._send({"config": config, "first": first, "count": count})
        here.settimeout(start_timeout_s or None)
        lines = here.makefile("rb")
        try:
            answer = json.loads(lines.readline() or b"{}")
        except TimeoutError as error:
            self.close()
            raise UserError(f"env.id {env_id}: its tasks were not there within {start_timeout_s:g} s") from error
        here.settimeout(None)
        super().__init__(answer.get("tasks", []))
        if not self._tasks:
            reason = answer.get("refused") or f"it has no tasks, or died{self._process.last_words()}"
            self.close()
            raise UserError(f"env.id {env_id}: {reason}")
        # The thread has no reference to this object, so that its deletion can end the process.
        listener = (lines, self._awaited, str(self._process))
        threading.Thread(target=_listen, args=listener, name=self._name, daemon=True).start()

    def prompt(self, task_id: int) -> str:
        """Return the task as text for people."""
        return str(self._tasks[task_id]["prompt"])

    def demonstrations(self, task_ids: Sequence[int]) -> list[tuple[str, str]]:
        """Tasksets have none."""
        raise ValueError("tasksets of verifiers have no demonstrations")

    def reset(self, *, options: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
        self._rows = list(options["task_ids"])
        domains = np.array([self._name] * len(self._rows), dtype=object)
        return tuple(map(self.prompt, self._rows)), {"domain": domains, "answer": np.full(len(self._rows), "", object)}

    def step_row(self, row: int, response: str, *, cut: bool = False) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Plays the row's task. ``response``: base_url, api_key and model, as JSON. Returns when the episode has ended.

        Raises:
            RuntimeError: the episode failed, or the process died.
        """
        number, future = next(self._numbers), Future[dict[str, Any]]()
        self._awaited[number] = future
        try:
            self._send({**json.loads(response), "id": number, "task": self._rows[row]})
            outcome = future.result()
        finally:
            self._awaited.pop(number, None)
        if "failed" in outcome:
            raise RuntimeError(outcome["failed"])
        reward = float(outcome["reward"])
        terms = {f"reward/{name}": float(value) for name, value in outcome["terms"].items()}
        return "", reward, True, False, {"verdict": "correct" if reward > 0 else "wrong", **terms}

    def _send(self, message: Mapping[str, Any]) -> None:
        try:
            with self._writing:
                self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise RuntimeError(f"{self._process} has ended{self._process.last_words()}") from error


def _listen(lines: Any, awaited: dict[int, Future[dict[str, Any]]], name: str) -> None:
    """Pass answers to the callers that wait for them; when the process dies, they receive a failure."""
    with contextlib.suppress(OSError, ValueError):  # closed here
        for line in lines:
            answer = json.loads(line)
            future = awaited.get(answer["id"])
            if future is not None:
                future.set_result(answer)
    for future in list(awaited.values()):
        if not future.done():
            future.set_result({"failed": f"{name} has ended"})


def _end(process: ChildProcess, connection: socket.socket) -> None:
    connection.close()
    process.close(_END_S)
