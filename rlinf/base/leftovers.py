"""Processes that outlive the one that started them, found by a mark in their environment, and killed.

A process that is killed ends none of its descendants, and those that leave its session belong to no group of its own.
A guard, one for each process that starts children, outlives that process and kills what bears its marks. The standard
library alone is used here: the guard runs this file, and a child in another interpreter borrows it.
"""

from __future__ import annotations

import atexit
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, MutableMapping
from contextlib import suppress

_MARKS = "RLINF_MARKS"
"""Environment variable with the marks of a process: its own, and those of the processes above it."""
_ROUNDS, _PAUSE_S = 100, 0.02
"""A process that starts others while it is killed needs another round."""
_GOODBYE_S = 5.0


def mark(variables: MutableMapping[str, str]) -> str:
    """Put a new mark into the environment of a child that is to be started, and return it."""
    made = secrets.token_hex(16)
    variables[_MARKS] = " ".join([*variables.get(_MARKS, "").split(), made])
    return made


def kill_marked(marks: Collection[str]) -> None:
    """Kills every process that bears one of the marks, this one excepted."""
    requested = [each.encode() for each in marks]
    for _ in range(_ROUNDS if requested else 0):
        results = [pid for pid in _process_ids() if pid != os.getpid() and _bears(pid, requested)]
        if not results:
            return
        for pid in results:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_S)


class _Guard:
    """Kills what bears the marks once this process is gone, for whatever reason."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, made: str) -> None:
        """Guard a mark, before the child that bears it is started. Raise OSError if no process can be started."""
        self._tell(f"+{made}\n")

    def remove(self, made: str) -> None:
        """Forgets a mark that no process bears any more."""
        self._tell(f"-{made}\n")

    def _tell(self, line: str) -> None:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", __file__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):
                self._process.stdin.write(line.encode())
                self._process.stdin.flush()

    def end(self) -> None:
        """End it in an orderly way; it kills what is left."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_GOODBYE_S)

    def forget(self) -> None:
        """Lets go of it in a forked child, whose copy of the pipe would keep it waiting."""
        if self._process is not None and self._process.stdin is not None:
            os.close(self._process.stdin.fileno())
        self._lock, self._process = threading.Lock(), None


guard = _Guard()


def _process_ids() -> list[int]:
    with suppress(OSError):  # no /proc: what left its group cannot be found
        return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return []


def _bears(pid: int, marks: Collection[bytes]) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        variables = file.read()
        return any(each in variables for each in marks)
    return False


def _stand_guard() -> None:
    """Read marks until the process above is gone, then kill what bears them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    marks: set[str] = set()
    for line in sys.stdin:
        (marks.add if line[0] == "+" else marks.discard)(line[1:].strip())
    kill_marked(marks)


if __name__ == "__main__":
    _stand_guard()
else:
    atexit.register(guard.end)
    os.register_at_fork(after_in_child=guard.forget)
