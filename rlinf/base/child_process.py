"""Child processes: started, spoken to, ended with everything that they started, and their ends put into words.

The standard library alone is used here, since a child in another interpreter borrows this module.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Literal

from rlinf.base.leftovers import guard, kill_marked, mark

_LIFELINE = "RLINF_LIFELINE"
"""Environment variable with the descriptor that :func:`die_with_parent` watches."""
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)
_LAST_LINES = 30
_LISTEN_S = 3.0


class ChildProcess:
    """One child process.

    ``session``: it is in a session of its own, so that Ctrl-C in a terminal is for this process alone, and :meth:`kill`
    ends whatever it started too. ``tied``: it can call :func:`die_with_parent`. With both, whatever it started
    also ends when this process is killed.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        name: str,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        input: bool = False,
        output: Literal["keep", "inherit", "drop"] | IO[str] = "keep",
        session: bool = True,
        tied: bool = True,
    ) -> None:
        """
        Args:
            name: for messages.
            env: its environment variables; None: those of this process.
            input: :meth:`send` reaches its standard input; otherwise that is empty, and a question gets an end of
                file.
            output: of standard output and error together: the last lines for :meth:`last_words`, the output of this
                process, nowhere, or a file.

        Raises:
            OSError: the program cannot be started.
        """
        streams = {"keep": subprocess.PIPE, "inherit": None, "drop": subprocess.DEVNULL}
        stdout = streams[output] if isinstance(output, str) else output
        variables = dict(os.environ if env is None else env)
        theirs, self._lifeline = os.pipe() if tied else (-1, -1)
        if tied:
            variables[_LIFELINE] = str(theirs)
        self._mark = mark(variables) if session and tied else None
        try:
            if self._mark is not None:
                guard.add(self._mark)
            self._process = subprocess.Popen(
                command,
                pass_fds=(*pass_fds, theirs) if tied else tuple(pass_fds),
                stdin=subprocess.PIPE if input else subprocess.DEVNULL,
                stdout=stdout,
                stderr=None if stdout is None else subprocess.STDOUT,
                env=variables,
                start_new_session=session,
            )
        except OSError:
            if tied:
                os.close(self._lifeline)
            raise
        finally:
            if tied:
                os.close(theirs)
        self._name, self._has_group = name, session
        self._words: deque[str] = deque(maxlen=_LAST_LINES)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        if output == "keep":
            self._listener.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def __str__(self) -> str:
        return f"{self._name} (pid {self.pid})"

    def send(self, message: bytes) -> None:
        """Write to its standard input. If it is gone already, :meth:`wait` reports so."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(message)
            self._process.stdin.flush()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Its exit code, negative for a signal, and what it started is ended; None: it still runs after that time."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        self._end_group()
        self._has_group = False  # another process may get its number
        self._release()
        return code

    def kill(self) -> int:
        """End it at once, if it still runs; return its exit code."""
        if self._process.poll() is None:
            self._end_group()
            self._process.kill()
        code = self.wait()
        assert code is not None
        return code

    def close(self, patience_s: float) -> None:
        """End its input, and give it ``patience_s`` to end by itself."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        if self.wait(patience_s) is None:
            self.kill()

    def how_it_ended(self) -> str:
        """`was killed by SIGKILL (...)` with the usual reason, or `ended with exit code 3`; it has ended."""
        code = self._process.returncode
        if code >= 0:
            return f"ended with exit code {code}"
        reason = "a crash in native code" if -code in _CRASHES else "out of memory, or by someone"
        return f"was killed by {signal.Signals(-code).name} ({reason})"

    def last_words(self) -> str:
        """Return the last lines that it wrote, as the end of a sentence; empty if there are none."""
        if self._listener.ident is not None:
            self._listener.join(_LISTEN_S)
        return "; it last wrote:\n" + "".join(self._words).rstrip() if self._words else ""

    def _listen(self) -> None:
        """Keep the end of what it prints; without a reader it would stop once the pipe is full."""
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._words.append(line.decode(errors="replace"))

    def _end_group(self) -> None:
        if self._has_group:
            with suppress(ProcessLookupError, PermissionError):  # no process is left in it
                os.killpg(self.pid, signal.SIGKILL)
        if self._mark is not None:  # what it started may be in a session of its own
            kill_marked([self._mark])
            guard.remove(self._mark)
            self._mark = None

    def _release(self) -> None:
        """Close what this process holds open for it."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()


def die_with_parent() -> None:
    """Has the kernel kill this child when its parent is gone, whatever it is busy with then.

    Nothing is ever written to the lifeline, so its only signal is the last one, and SIGIO kills by default. A thread
    that waited for it would not run while native code hangs with the interpreter's lock held.
    """
    lifeline = int(os.environ.pop(_LIFELINE))
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    poller = select.poll()
    poller.register(lifeline, select.POLLIN)
    if poller.poll(0):  # it had closed before
        sys.exit("the process that started this one is gone")
