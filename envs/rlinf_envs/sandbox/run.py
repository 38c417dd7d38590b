"""One program in a sandbox: its own process, walled in, with limits on time, memory, processes, files and output."""

from __future__ import annotations

import functools
import marshal
import math
import os
import selectors
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from rlinf_envs.errors import SettingError
from rlinf_envs.sandbox.walls import KINDS, VARIABLES, Kind, command, fresh_uid, installed, is_root, visible

Status = Literal["done", "failed", "timeout"]

_MIB = 1 << 20
_WALL_FACTOR = 3.0
"""A program that does not compute is given up after this many times as long by the clock."""
_SIDE_BY_SIDE = threading.BoundedSemaphore(max(2, 2 * (os.cpu_count() or 1)))
"""Programs of this process at a time: more would only slow each other down until their deadlines pass."""

# Runs inside. What it needs comes in marshalled, which needs no import; the walls are up already.
_INSIDE = """
import marshal, os, resource, sys
limits, uid, code, given = marshal.load(sys.stdin.buffer)
if uid is not None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
with open("/tmp/program.py", "w", encoding="utf-8", errors="replace") as file:
    file.write(code)
words = os.memfd_create("stdin")
with open(words, "wb", closefd=False) as file:
    file.write(given)
os.lseek(words, 0, os.SEEK_SET)
os.dup2(words, 0)
os.close(words)
sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)
sys.argv = ["program.py"]
os.environ.clear()
for name, value in limits.items():
    resource.setrlimit(getattr(resource, name), value)
try:
    exec(compile(code, "/tmp/program.py", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
except Exception as error:
    sys.stdout.flush()
    error = error.with_traceback(error.__traceback__.tb_next)
    sys.excepthook(type(error), error, error.__traceback__)
    sys.exit(1)
"""


@dataclass(frozen=True)
class Limits:
    """The resources that a program may use up."""

    time_s: float = 5.0
    """Seconds of CPU time of each process; by the clock three times as long."""
    memory_mb: int = 512
    """Address space of each process."""
    processes: int = 8
    """Processes and threads."""
    files_mb: int = 16
    """Of what it writes under /tmp, which nobody else sees and which is gone afterwards."""
    output_chars: int = 20_000
    """Of what it prints; what comes after that is lost, and ends it."""

    def __post_init__(self) -> None:
        for name in ("time_s", "memory_mb", "processes", "files_mb", "output_chars"):
            if not getattr(self, name) > 0:
                raise SettingError(f"sandbox.{name} must be above 0, got {getattr(self, name)!r}")


@dataclass(frozen=True)
class Outcome:
    """The result of running a program.

    ``failed``: it raised, was killed by one of its limits, or ended with another exit code than 0.
    """

    status: Status
    output: str
    """What it printed, errors included."""


class Sandbox:
    """Runs programs with the standard library of this interpreter and nothing else. Safe from any thread."""

    def __init__(self, limits: Limits | None = None, *, kind: Kind | None = None) -> None:
        """``kind``: how it is walled in; None takes the first that works here.

        Raises:
            SettingError: none works: programs are never run without walls.
        """
        self.limits = limits or Limits()
        self.kind = kind or working_kind()
        if kind is not None and (problem := _problem(kind)):
            raise SettingError(f"the sandbox {kind} does not work here: {problem}")

    def run(self, program: str, stdin: str = "") -> Outcome:
        """Runs the text of ``program`` with ``stdin`` as its standard input."""
        with _SIDE_BY_SIDE:
            return _run(self.kind, program, stdin, self.limits)


@functools.cache
def working_kind() -> Kind:
    """The first kind of sandbox that works on this machine.

    Raises:
        SettingError: there is none; the message says why, and what to install.
    """
    problems = {kind: _problem(kind) for kind in KINDS}
    for kind, problem in problems.items():
        if not problem:
            return kind
    listed = "; ".join(f"{kind}: {problem}" for kind, problem in problems.items())
    raise SettingError(
        f"there is no sandbox on this machine, and programs of a policy are never run without one ({listed}). Install "
        "bubblewrap (apt install bubblewrap), or allow user namespaces (docker: --security-opt seccomp=unconfined)."
    )


@functools.cache
def _problem(kind: Kind) -> str:
    """Why programs cannot be run so; "" where they can."""
    if not installed(kind):
        return "not installed"
    outcome = _run(kind, "print('ready')", "", Limits(time_s=20.0))
    return "" if outcome.output == "ready\n" else " ".join(outcome.output.split())[-300:] or outcome.status


def _run(kind: Kind, program: str, stdin: str, limits: Limits) -> Outcome:
    uid = fresh_uid() if is_root() else None
    argv = command(
        kind, [visible().python, "-I", "-S", "-B", "-c", _INSIDE], files_bytes=limits.files_mb * _MIB, uid=uid
    )
    inside_uid = uid if kind == "bwrap" else None
    given = marshal.dumps((_rlimits(limits), inside_uid, program, stdin.encode("utf-8", "replace")))
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=VARIABLES,
        start_new_session=True,
    ) as process:
        try:
            output, late = _talk(process, given, limits)
        finally:
            # The first process of a namespace takes all others with it.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    text = output.decode("utf-8", "replace")[: limits.output_chars]
    if late or process.returncode in (-signal.SIGXCPU, 128 + signal.SIGXCPU):
        return Outcome("timeout", text)
    return Outcome("done" if process.returncode == 0 else "failed", text)


def _rlimits(limits: Limits) -> dict[str, tuple[int, int]]:
    """Limits of :mod:`resource` by name, soft and hard."""
    seconds = math.ceil(limits.time_s)
    both = {
        "RLIMIT_AS": limits.memory_mb * _MIB,
        "RLIMIT_FSIZE": limits.files_mb * _MIB,
        "RLIMIT_NOFILE": 64,
        "RLIMIT_CORE": 0,
        "RLIMIT_NPROC": limits.processes,
    }
    # The soft limit says by its signal what ended the program.
    return {"RLIMIT_CPU": (seconds, seconds + 1), **{name: (value, value) for name, value in both.items()}}


def _talk(process: subprocess.Popen[bytes], given: bytes, limits: Limits) -> tuple[bytes, bool]:
    """Hands over the program and reads what it prints: (output, whether the time was up)."""
    assert process.stdin is not None
    assert process.stdout is not None
    until = time.monotonic() + limits.time_s * _WALL_FACTOR
    output, sent = bytearray(), 0
    most = 4 * limits.output_chars
    with selectors.DefaultSelector() as selector:
        os.set_blocking(process.stdin.fileno(), False)
        selector.register(process.stdin, selectors.EVENT_WRITE)
        selector.register(process.stdout, selectors.EVENT_READ)
        while process.stdout in {key.fileobj for key in selector.get_map().values()}:
            ready = selector.select(max(0.0, until - time.monotonic()))
            if not ready:
                return bytes(output), True
            for key, _ in ready:
                if key.fileobj is process.stdin:
                    with suppress(BrokenPipeError):
                        sent += os.write(process.stdin.fileno(), given[sent : sent + 65536])
                        if sent < len(given):
                            continue
                    selector.unregister(process.stdin)
                    with suppress(BrokenPipeError):
                        process.stdin.close()
                    continue
                piece = os.read(process.stdout.fileno(), 65536)
                output += piece
                if not piece:
                    selector.unregister(process.stdout)
                elif len(output) > most:
                    return bytes(output), False
    left = max(0.0, until - time.monotonic())
    try:
        process.wait(left)
    except subprocess.TimeoutExpired:
        return bytes(output), True
    return bytes(output), False
