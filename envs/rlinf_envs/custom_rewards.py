"""Reward functions of the user's own, named "module:function" and called in a process of their own."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from rlinf.base.packages import missing_package
from rlinf.base.user_code import MODULE_PATH_ADVICE, importing, names_a_file, other_module
from rlinf_envs.errors import RewardError, SettingError
from rlinf_envs.reward_calls import Scored, doubt_about, misfit
from rlinf_envs.suggest import unknown
from rlinf_envs.tasks import Task
from rlinf_envs.workers import Memory, WorkerPool

DEFAULT_TIMEOUT_S = 120.0
DEFAULT_MEMORY_MB = 8192


def find_function(path: str) -> Callable[..., Any]:
    """Find the function that ``path`` ("module:function") names; its module is imported.

    Raises:
        SettingError: the path has no colon, the module cannot be imported, it has no such name, or what it has
            there cannot be called with a response.
    """
    module_name, colon, name = path.partition(":")
    if not colon or not module_name or not name:
        dotted = module_name.rpartition(".")
        meant = f", {dotted[0]}:{dotted[2]} for example" if dotted[0] and not colon else ""
        raise SettingError(f"reward.custom: {path!r} must read module:function{meant}")
    if wrong := names_a_file(path):
        raise SettingError(f"reward.custom: {path!r}: {wrong}")
    try:
        with importing(path):
            module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # whatever the user's module does when it is imported
        reason = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        reason = missing_package(error) or reason
        if isinstance(error, ModuleNotFoundError) and error.name == module_name:
            reason += f". {MODULE_PATH_ADVICE}"
        raise SettingError(f"reward.custom: cannot import {module_name!r} of {path!r}: {reason}") from error
    function: Callable[..., Any] | None = getattr(module, name, None)
    if function is None:
        functions = [known for known, value in vars(module).items() if callable(value) and known[0] != "_"]
        raise SettingError(
            f"reward.custom: {module_name!r} has no function {name!r}{other_module(module)}: "
            f"{unknown('name', name, functions)}"
        )
    wrong = misfit(function, name)
    if wrong:
        raise SettingError(f"reward.custom: {path} {wrong}")
    return function


class CustomReward:
    """Calls one function. Its module is imported here, to check it, and in the process that calls the function."""

    def __init__(self, path: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, memory_mb: int = DEFAULT_MEMORY_MB) -> None:
        """
        Args:
            timeout_s: deadline of one call, seconds.
            memory_mb: MiB that the function's process and all that it starts may take together; 0 means no limit.

        Raises:
            SettingError: a limit below 0, or as for :func:`find_function`.
        """
        if isinstance(memory_mb, bool) or not isinstance(memory_mb, int) or memory_mb < 0:
            raise SettingError(f"reward_memory_mb must be a whole number of MiB, or 0 for no limit, got {memory_mb!r}")
        self._function = find_function(path)
        self.path, self.timeout_s, self.memory_mb = path, timeout_s, memory_mb

    def doubt(self, prompt: str, task: Task) -> str:
        """Return what the function would hardly expect of calls about ``task``, as a sentence, or ""."""
        return doubt_about(self._function, Scored(prompt, "", task.answer, task.row))

    def __call__(self, *, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
        """Return the function's value. ``row`` is copied on the way, so the function may change it.

        Raises:
            RewardError: it raised, returned no number, took too long or too much memory, or ended its process.
        """
        [outcome] = _pool(self.timeout_s, self.memory_mb).map([(self.path, prompt, response, answer, dict(row))])
        if outcome.status == "timeout":
            raise RewardError(f"did not return within {self.timeout_s:g} s (env.kwargs.reward_timeout)")
        limit = f"{self.memory_mb} MiB of memory (env.kwargs.reward_memory_mb)"
        if outcome.status == "memory":
            raise RewardError(f"took more than {limit}, with what it started")
        if outcome.status == "died":
            raise RewardError("ended its process (os._exit, a crash in native code, or no memory left)")
        if outcome.status == "error":
            raise RewardError(str(outcome.value))
        kind, value = outcome.value
        if kind == "problem":
            bound = f"; it may take {limit}" if self.memory_mb and value.startswith("raised MemoryError") else ""
            raise RewardError(value + bound)
        return float(value)


_pools: dict[tuple[Any, ...], WorkerPool] = {}
_pools_lock = threading.Lock()


def _pool(timeout_s: float, memory_mb: int) -> WorkerPool:
    """Return the process that all environments here share; another one if modules are found elsewhere by now."""
    key = (timeout_s, memory_mb, *sys.path)
    with _pools_lock:
        if key not in _pools:
            # The kernel's limit raises MemoryError at the line that goes too far; what was started has one of its own.
            memory = Memory(address_space=0, data=memory_mb << 20, resident=memory_mb << 20)
            _pools[key] = WorkerPool(
                "rlinf_envs.reward_worker:call", timeout_s=timeout_s, wall_factor=1.0, memory=memory, prints=True
            )
        return _pools[key]
