"""One program in a sandbox: its own process, walled in, with limits on time, memory, processes, files and output."""

from __future__ import annotations

import functools
import marshal
import math
import os
import signal
import socket
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from rlinf_envs.errors import SettingError
from rlinf_envs.sandbox.limits import Limits
from rlinf_envs.sandbox.syscalls import filter_program
from rlinf_envs.sandbox.walls import KINDS, VARIABLES, Kind, command, fresh_uid, installed, is_root, visible
from rlinf_envs.sandbox.watch import Watch

Status = Literal["done", "failed", "timeout"]

_MIB = 1 << 20
_SIDE_BY_SIDE = threading.BoundedSemaphore(max(2, 2 * (os.cpu_count() or 1)))
"""Programs of this process at a time: more would only slow each other down until their deadlines pass."""

# Runs inside, the walls are up already. What it needs comes in marshalled, which needs no import, once it has sent the
# folder that the program writes to: by then the kernel ends it with the process that started it.
_INSIDE = """
import _socket, ctypes, fcntl, marshal, os, resource, struct, sys
door, folder = _socket.socket(fileno=os.dup(0)), os.open("/tmp", os.O_RDONLY)
door.sendmsg([b"."], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", folder))])
door.close()
os.close(folder)
limits, uid, refused, code, given = marshal.load(sys.stdin.buffer)
if uid is not None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
with open("/tmp/program.py", "w", encoding="utf-8", errors="replace") as file:
    file.write(code)
words = os.memfd_create("stdin", os.MFD_ALLOW_SEALING)
with open(words, "wb", closefd=False) as file:
    file.write(given)
fcntl.fcntl(words, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
os.lseek(words, 0, os.SEEK_SET)
os.dup2(words, 0)
os.close(words)
sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)
sys.argv = ["program.py"]
os.environ.clear()
for name, value in limits.items():
    resource.setrlimit(getattr(resource, name), value)
libc, rules = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(refused)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, struct.pack("@HP", len(refused) // 8, ctypes.addressof(rules))):
    sys.exit(f"no seccomp filter: {os.strerror(ctypes.get_errno())}")
try:
    names = {"__name__": "__main__", "__builtins__": __builtins__, "exit": sys.exit, "quit": sys.exit}
    exec(compile(code, "/tmp/program.py", "exec"), names)
except Exception as error:
    sys.stdout.flush()
    error = error.with_traceback(error.__traceback__.tb_next)
    sys.excepthook(type(error), error, error.__traceback__)
    sys.exit(1)
"""


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
        """Run the text of ``program`` with ``stdin`` as its standard input."""
        with _SIDE_BY_SIDE:
            return _run(self.kind, program, stdin, self.limits)


@functools.cache
def working_kind() -> Kind:
    """Find the first kind of sandbox that works on this machine.

    Raises:
        SettingError: there is none; the message states why, and what to install.
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
    """Return why programs cannot be run so; "" if they can."""
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
    message = marshal.dumps((_rlimits(limits), inside_uid, filter_program(), program, stdin.encode("utf-8", "replace")))
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = subprocess.Popen(
                argv,
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=VARIABLES,
                start_new_session=True,
            )
        with process:
            try:
                output, late = Watch(process, ours, message, limits).until_it_ends()
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
    # The signal of the soft limit shows what ended the program.
    return {"RLIMIT_CPU": (seconds, seconds + 1), **{name: (value, value) for name, value in both.items()}}
