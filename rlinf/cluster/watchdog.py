"""Ends what is left of a Ray cluster when the process that started it ends, however that happens.

Run as a file, with the interpreter's bare minimum: `python -I -S watchdog.py FOLDER`. Its standard input is a pipe
whose other end only the driver holds; when it closes, every process of the cluster is killed, and FOLDER, where Ray
keeps its sockets and logs, is removed. Without this Ray's agents outlive a driver that was killed by a minute, and hold
on to its standard output all the while.

A process belongs to the cluster where it has a file in FOLDER open for writing, or carries FOLDER in the environment
variable :data:`MARK`. Either alone would miss some: processes that a simulator starts with an output of their own, and
Ray's agents, whose title is written over a part of their environment.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import sys
import time

MARK = "RLINF_RAY_FOLDERS"
"""Folders of the clusters that a process belongs to; several where a driver runs inside another's worker."""
_PATIENCE_S = 20.0
_QUIET_S = 0.5  # a process that was being started during one look is there at the next
_POLL_S = 0.1


def main(folder: str) -> None:
    """Waits for the end of standard input, then cleans up. A driver that ends in good order sends a byte before."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    driver = os.getppid()
    farewell = os.read(0, 1)
    while farewell and os.read(0, 1):
        pass
    if not farewell:
        print(
            f"The program (pid {driver}) ended without a word: it was killed, crashed in native code, or was "
            "ended by Ray because its raylet was lost; the same command continues from the last checkpoint.",
            file=sys.stderr,
            flush=True,
        )
    end_members(folder, driver)
    shutil.rmtree(folder, ignore_errors=True)


def end_members(folder: str, driver: int) -> None:
    """Kills the processes of the cluster until none has been seen for a moment. The driver, which writes a log there
    too, may still have a report to make."""
    give_up = time.monotonic() + _PATIENCE_S
    last_seen = time.monotonic()
    while time.monotonic() < give_up and time.monotonic() - last_seen < _QUIET_S:
        for pid in members(folder, driver):
            last_seen = time.monotonic()
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:  # it has just ended
                continue
        time.sleep(_POLL_S)


def members(folder: str, driver: int) -> list[int]:
    """Ids of the cluster's processes, without the driver and zombies. Empty on a system without `/proc`."""
    try:
        pids = {int(entry) for entry in os.listdir("/proc") if entry.isdigit()} - {driver, os.getpid()}
    except OSError:
        return []
    return [pid for pid in pids if folder in _folders(pid) or _writes_into(folder, pid)]


def _writes_into(folder: str, pid: int) -> bool:
    path = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(path):
            link = os.path.join(path, name)
            if os.readlink(link).startswith(folder + os.sep) and os.lstat(link).st_mode & stat.S_IWUSR:
                return True
    except OSError:  # as below
        pass
    return False


def _folders(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:  # it ended, is a zombie, or is somebody else's
        return []
    prefix = f"{MARK}=".encode()
    values = [variable[len(prefix) :] for variable in variables if variable.startswith(prefix)]
    return [folder for value in values for folder in os.fsdecode(value).split(os.pathsep)]


if __name__ == "__main__":
    main(sys.argv[1])
