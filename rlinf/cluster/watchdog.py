"""Ends what is left of a Ray cluster when the process that started it ends, however that happens.

Run as a file, with the interpreter's bare minimum: `python -I -S watchdog.py FOLDER DRIVER`. Its standard
input is a pipe whose other end only the driver holds. When it closes, every process of the cluster is killed,
and FOLDER, where Ray keeps its sockets and logs, is removed. Without this Ray's agents outlive a driver that
was killed by a minute, and hold on to its standard output all the while.

The driver writes the process id of its raylet and a newline. A raylet that is stopped (SIGSTOP) answers no
process, and the driver may wait for it inside Ray, without a deadline. So it is killed, which ends the run as
any lost raylet does.

A process belongs to the cluster if its start environment, or that of one of its ancestors, carries FOLDER in
the variable :data:`MARK`. No other cluster has this FOLDER. Ancestors count because a simulator may start
programs with an environment of their own. Neither its name, nor its process group, nor the files it has open
count. Another driver that joined the cluster writes a log into FOLDER as well.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from contextlib import suppress

MARK = "RLINF_RAY_FOLDERS"
"""Folders of the clusters that a process belongs to; several where a driver runs inside another's worker."""
FAREWELL = b"."
"""What a driver writes last that ends in good order."""
_PATIENCE_S = 20.0
_STOPPED_S = 5.0  # Ray gives a silent raylet up after 15 s
_CHECK_S = 1.0
_QUIET_S = 0.5  # a process that was being started during one check is there at the next
_POLL_S = 0.1


def main(folder: str, driver: int) -> None:
    """Wait for the end of standard input, then clean up."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    if not listen(0, driver).endswith(FAREWELL):
        _write_error(
            f"The program (pid {driver}) ended without a word: it was killed, crashed in native code, or was "
            "ended by Ray because its raylet was lost; the same command continues from the last checkpoint."
        )
    _end_members(folder, driver)
    shutil.rmtree(folder, ignore_errors=True)


def listen(pipe: int, driver: int) -> bytes:
    """All that the driver wrote, once its end of the pipe is closed; until then its raylet is watched."""
    received, stopped_since = b"", None
    while True:
        raylet, complete, _ = received.partition(b"\n")
        ready, _, _ = select.select([pipe], [], [], _CHECK_S if complete else None)
        if ready:
            news = os.read(pipe, 64)
            if not news:
                return received
            received += news
        elif _status(int(raylet)) != (b"T", driver):
            stopped_since = None
        elif stopped_since is None:
            stopped_since = time.monotonic()
        elif time.monotonic() - stopped_since > _STOPPED_S:
            _write_error(f"Ray's raylet (pid {int(raylet)}) has been stopped for {_STOPPED_S:g} s, and is ended.")
            os.kill(int(raylet), signal.SIGKILL)


def _write_error(sentence: str) -> None:
    with suppress(OSError):  # the terminal may be closed, or the pipe's reader gone
        os.write(2, f"{sentence}\n".encode())


def _end_members(folder: str, driver: int) -> None:
    """Kills the processes of the cluster until none has been seen for a moment; the driver is spared."""
    give_up = time.monotonic() + _PATIENCE_S
    last_seen = time.monotonic()
    while time.monotonic() < give_up and time.monotonic() - last_seen < _QUIET_S:
        for pid in members(folder) - {driver, os.getpid()}:
            last_seen = time.monotonic()
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:  # it has just ended
                continue
        time.sleep(_POLL_S)


def members(folder: str) -> set[int]:
    """Ids of the cluster's processes, without zombies. Empty on a system without `/proc`."""
    try:
        pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    except OSError:
        return set()
    living = {pid: parent for pid in pids for state, parent in [_status(pid)] if state not in (b"Z", b"")}
    results = {pid for pid in pids if folder in _folders(pid)}
    frontier = results
    while frontier := {pid for pid, parent in living.items() if parent in frontier} - results:
        results |= frontier
    return results


def _status(pid: int) -> tuple[bytes, int]:
    """Read the kernel's letter for the state of a process, and its parent; an empty letter if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
    except OSError:  # as below
        return b"", 0
    return state, int(parent)


def _folders(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:  # it ended, is a zombie, or belongs to another user
        return []
    prefix = f"{MARK}=".encode()
    values = [variable[len(prefix) :] for variable in variables if variable.startswith(prefix)]
    return [folder for value in values for folder in os.fsdecode(value).split(os.pathsep)]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
