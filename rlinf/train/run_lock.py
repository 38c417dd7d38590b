"""One run directory, one writer: a lock that names its holder.

The lock is the kernel's (`flock` on `.lock` in the run directory): it ends with the process that holds it,
however that ends. The file names the holder by process, host and start time. If the file system does not
carry locks from machine to machine, the file is all there is. Then a holder on another machine touches it
every few seconds, and one that has not done so for :data:`SILENCE_S` while another process watched is dead.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rlinf.base.errors import UserError

NAME = ".lock"
BEAT_S = 5.0
"""How often a holder touches its file."""
SILENCE_S = 30.0
"""How long a holder on another machine must not have touched its file to count as dead."""
_POLL_S = 0.2
_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
_open_handles: weakref.WeakSet[RunLock] = weakref.WeakSet()


class RunLockedError(UserError):
    """Another process writes to this run directory; the message names it."""


@dataclass(frozen=True)
class Holder:
    """Who holds a lock."""

    pid: int
    host: str
    since: str
    """ISO 8601, UTC."""

    @classmethod
    def this_process(cls) -> Holder:
        return cls(os.getpid(), socket.gethostname(), datetime.now(UTC).isoformat(timespec="seconds"))

    @classmethod
    def read(cls, path: Path) -> Holder | None:
        """Read the holder that a lock file names; None if it names none."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host} since {self.since}"


class RunLock:
    """Held from :meth:`take` to :meth:`release`, or to the end of the process."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle: int | None = handle
        self._stop = threading.Event()
        _open_handles.add(self)
        threading.Thread(target=self._beat, name="run-lock", daemon=True).start()

    @classmethod
    def take(cls, folder: Path, *, silence_s: float = SILENCE_S) -> RunLock:
        """Locks ``folder``, which exists. Raises :class:`RunLockedError` that names the holder."""
        path = folder / NAME
        # Not through a link: the lock would be another file's, whose text it would replace.
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise RunLockedError(f"{path} is a link, and a lock must be a file of its own: remove it") from error
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise RunLockedError(f"{path} is no file, and a lock must be one: remove it")
        try:
            kernel = _flock(handle)
            holder = Holder.read(path)
            if kernel is False or (holder is not None and _alive(holder, path, kernel=kernel, silence_s=silence_s)):
                named = str(holder) if holder is not None else "another process"
                raise RunLockedError(f"{folder} is in use by {named}: wait for it, end it, or choose another run.dir")
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(asdict(Holder.this_process())).encode(), 0)
        except BaseException:
            os.close(handle)
            raise
        return cls(path, handle)

    def release(self) -> None:
        """Remove the holder's name; a second call does nothing."""
        self._stop.set()
        if self._handle is not None:
            with suppress(OSError):
                os.ftruncate(self._handle, 0)
                fcntl.flock(self._handle, fcntl.LOCK_UN)
            os.close(self._handle)
            self._handle = None

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_S):
            with suppress(OSError, TypeError):
                os.utime(self._handle)  # type: ignore[arg-type]

    def _forget(self) -> None:
        """Close a forked child's copy, which would keep the lock after the holder's death."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _forget_all() -> None:
    for lock in list(_open_handles):
        lock._forget()


os.register_at_fork(after_in_child=_forget_all)


def _flock(handle: int) -> bool | None:
    """Return True if the kernel's lock is ours, False if another holds it, None if this file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return None
        raise
    return True


def _alive(holder: Holder, path: Path, *, kernel: bool | None, silence_s: float) -> bool:
    """Return whether a holder that the file names still writes here, though the kernel's lock does not show it."""
    if holder.host != socket.gethostname():
        return _beats(path, silence_s)
    if kernel:
        return False  # on one machine the kernel's lock is the truth: its holder is dead
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _beats(path: Path, silence_s: float) -> bool:
    """Return whether the file is touched, or released, within ``silence_s``. Each open makes NFS read it again."""
    first = _touched(path)
    until = time.monotonic() + silence_s
    while time.monotonic() < until:
        time.sleep(min(_POLL_S, silence_s))
        if Holder.read(path) is None:
            return False
        if _touched(path) != first:
            return True
    return False


def _touched(path: Path) -> int:
    with path.open("rb") as file:
        return os.fstat(file.fileno()).st_mtime_ns
