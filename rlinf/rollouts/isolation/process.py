"""One environment process as seen from the run: started, asked with a deadline, killed, and its death explained."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from rlinf.errors import UserError
from rlinf.rollouts.isolation.wire import HungUpError, Message, WireError, receive, send

_CLOSE_TIMEOUT_S = 3.0
_LAST_LINES = 30
_CHILD = Path(__file__).with_name("child.py")
_LENT = ("rlinf", "rlinf_envs")
# They would show the run's packages to the other interpreter.
_OURS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")


class EnvProcessError(RuntimeError, UserError):
    """An environment process could not be started, died, refused, or said something that is no answer."""


class EnvProcessTimeoutError(EnvProcessError):
    """It did not answer in time; it is dead now."""


class EnvProcess:
    """``python`` is the interpreter of the environment's virtual environment; None takes the one of this process.

    It is up, within ``start_timeout_s``, when its first answer comes, so that several processes can start side by side.
    """

    def __init__(self, python: str | None, start_timeout_s: float) -> None:
        self.python = python or sys.executable
        self._start_timeout_s = start_timeout_s
        here, there = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        command = [self.python, str(_CHILD), str(there.fileno()), str(lifeline)]
        try:
            self._process = subprocess.Popen(
                [*command, *(f"{name}={folder}" for name, folder in lent_packages().items())],
                pass_fds=(there.fileno(), lifeline),
                stdin=subprocess.DEVNULL,  # an environment that asks gets an end of file, not our terminal
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=_environment(python),
                start_new_session=True,  # Ctrl-C is for the run; what the environment starts dies with it
            )
        except OSError as error:
            raise EnvProcessError(f"env.python: {self.python} can not be started: {error}") from error
        finally:
            there.close()
            os.close(lifeline)
        self._connection = here
        self._words: deque[str] = deque(maxlen=_LAST_LINES)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self.alive = True
        self._greeted = False

    def post(self, message: Message, timeout_s: float | None) -> None:
        """Sends; the answer is for :meth:`answer`, so that several processes can work at the same time."""
        self._awaited = message.kind
        try:
            send(self._connection, message, timeout_s)
        except TimeoutError as error:
            raise self._late(timeout_s) from error
        except (HungUpError, OSError) as error:
            raise self._dead() from error

    def answer(self, timeout_s: float | None) -> Message:
        """What it says to the last message; None waits for ever.

        Raises:
            EnvProcessError: it died, or the message failed there; its traceback or last words are in the text.
            EnvProcessTimeoutError: it took too long, and was killed.
        """
        if not self._greeted:
            awaited = self._awaited
            self._expect("hello", self._start_timeout_s)
            self._greeted, self._awaited = True, awaited
        return self._expect(self._awaited, timeout_s)

    def ask(self, message: Message, timeout_s: float | None) -> Message:
        self.post(message, timeout_s)
        return self.answer(timeout_s)

    def kill(self) -> None:
        """At once, with everything that it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._release()

    def close(self) -> None:
        """Lets it close its environments, for a moment; then it is killed."""
        self._connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_CLOSE_TIMEOUT_S)
        self.kill()

    def _expect(self, kind: str, timeout_s: float | None) -> Message:
        self._awaited = kind
        try:
            message = receive(self._connection, timeout_s)
        except TimeoutError as error:
            raise self._late(timeout_s) from error
        except (HungUpError, OSError) as error:
            raise self._dead() from error
        except WireError as error:
            self.kill()
            raise EnvProcessError(f"{self._name()}: {error}") from error
        if message.kind == "refused":
            raise EnvProcessError(message.fields["words"])
        if message.kind == "error":
            raise EnvProcessError(f"{self._name()} failed at {kind!r}:\n{message.fields['traceback']}")
        return message

    def _name(self) -> str:
        return f"the environment's process {self._process.pid} ({self.python})"

    def _late(self, timeout_s: float | None) -> EnvProcessTimeoutError:
        self.kill()
        return EnvProcessTimeoutError(
            f"{self._name()} did not answer {self._awaited!r} within {timeout_s:.3g} s and was killed"
            f"{self._last_words()}"
        )

    def _dead(self) -> EnvProcessError:
        try:
            code = self._process.wait(_CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return EnvProcessError(f"{self._name()} closed the connection without dying, and was killed")
        self._release()
        how = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return EnvProcessError(f"{self._name()} {how} at {self._awaited!r}{self._last_words()}")

    def _last_words(self) -> str:
        self._listener.join(_CLOSE_TIMEOUT_S)
        return "; it last wrote:\n" + "".join(self._words).rstrip() if self._words else ""

    def _listen(self) -> None:
        """Keeps the end of what it prints; without a reader it would block once the pipe is full."""
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self._words.append(line.decode(errors="replace"))

    def _release(self) -> None:
        if self.alive:
            self.alive = False
            self._connection.close()
            os.close(self._lifeline)
            self._process.wait()


def _environment(python: str | None) -> dict[str, str]:
    """Environment variables of the process; our own interpreter finds the modules that this process finds."""
    if python is None:
        return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return {name: value for name, value in os.environ.items() if name not in _OURS}


def lent_packages() -> Mapping[str, str]:
    """Folders of the packages that the other interpreter borrows."""
    folders = {}
    for name in _LENT:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            folders[name] = next(iter(spec.submodule_search_locations))
    return folders
