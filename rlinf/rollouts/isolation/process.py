"""One environment process as seen from the run: requests have a deadline, and it is killed if it does not answer."""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from rlinf.base.child_process import ChildProcess
from rlinf.base.errors import UserError
from rlinf.rollouts.isolation.wire import HungUpError, IsolationError, WireMessage, receive, send

_CLOSE_TIMEOUT_S = 3.0
_CHILD = Path(__file__).with_name("child.py")
_LENT = ("rlinf", "rlinf_envs")
# They would show the run's packages to the other interpreter.
_OURS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")


class EnvProcessError(RuntimeError, UserError):
    """An environment process could not be started, died, refused, or sent something that is no answer."""


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
        lent = (f"{name}={folder}" for name, folder in _lent_packages().items())
        try:
            self._process = ChildProcess(
                [self.python, str(_CHILD), str(there.fileno()), *lent],
                name="the environment's process",
                pass_fds=[there.fileno()],
                env=_environment(python),
            )
        except OSError as error:
            here.close()
            raise EnvProcessError(f"env.python: {self.python} cannot be started: {error}") from error
        finally:
            there.close()
        self._connection = here
        self.alive = True
        self._greeted = False

    def post(self, message: WireMessage, timeout_s: float | None) -> None:
        """Send a message; the answer is for :meth:`answer`, so that several processes can work at the same time."""
        self._awaited = message.kind
        try:
            send(self._connection, message, timeout_s)
        except TimeoutError as error:
            raise self._late(timeout_s) from error
        except (HungUpError, OSError) as error:
            raise self._dead() from error

    def answer(self, timeout_s: float | None) -> WireMessage:
        """Return the answer to the last message; None waits for ever.

        Raises:
            EnvProcessError: it died, or the message failed there; its traceback or last words are in the text.
            EnvProcessTimeoutError: it took too long, and was killed.
        """
        if not self._greeted:
            awaited = self._awaited
            self._expect("hello", self._start_timeout_s)
            self._greeted, self._awaited = True, awaited
        return self._expect(self._awaited, timeout_s)

    def call(self, message: WireMessage, timeout_s: float | None) -> WireMessage:
        self.post(message, timeout_s)
        return self.answer(timeout_s)

    def kill(self) -> None:
        """At once, with everything that it started."""
        self.alive = False
        self._connection.close()
        self._process.kill()

    def close(self) -> None:
        """Lets it close its environments, for a moment; then it is killed."""
        self.alive = False
        self._connection.close()
        self._process.close(_CLOSE_TIMEOUT_S)

    def _expect(self, kind: str, timeout_s: float | None) -> WireMessage:
        self._awaited = kind
        try:
            message = receive(self._connection, timeout_s)
        except TimeoutError as error:
            raise self._late(timeout_s) from error
        except (HungUpError, OSError) as error:
            raise self._dead() from error
        except IsolationError as error:
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
        key = "cluster.start_timeout_s" if timeout_s == self._start_timeout_s else "env.step_timeout_s"
        return EnvProcessTimeoutError(
            f"{self._name()} did not answer {self._awaited!r} within {timeout_s:.3g} s ({key}) and was killed"
            f"{self._process.last_words()}"
        )

    def _dead(self) -> EnvProcessError:
        if self._process.wait(_CLOSE_TIMEOUT_S) is None:
            self.kill()
            return EnvProcessError(f"{self._name()} closed the connection without dying, and was killed")
        self.kill()
        how = f"{self._process.how_it_ended()} at {self._awaited!r}{self._process.last_words()}"
        return EnvProcessError(f"{self._name()} {how}")


def _environment(python: str | None) -> dict[str, str]:
    """Environment variables of the process; our own interpreter finds the modules that this process finds."""
    if python is None:
        return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return {name: value for name, value in os.environ.items() if name not in _OURS}


def _lent_packages() -> Mapping[str, str]:
    """Folders of the packages that the other interpreter borrows."""
    folders = {}
    for name in _LENT:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            folders[name] = next(iter(spec.submodule_search_locations))
    return folders
