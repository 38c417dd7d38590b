"""Programs that mean harm are contained, whichever walls there are."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from rlinf_envs.errors import SettingError
from rlinf_envs.sandbox import Limits, Outcome, Sandbox
from rlinf_envs.sandbox.walls import KINDS

FORK_BOMB = """
import os
made = 0
while True:
    try:
        if os.fork() == 0:
            while True:
                pass
        made += 1
    except OSError:
        print(made < 8)
        break
"""


@pytest.fixture(scope="module", params=KINDS)
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    try:
        return Sandbox(Limits(time_s=2.0, output_chars=2000), kind=request.param)
    except SettingError as error:
        pytest.skip(str(error))


def test_a_harmless_program_reads_and_prints(sandbox: Sandbox) -> None:
    outcome = sandbox.run("import json\nprint(json.dumps(input()))", 'two "words"')
    assert outcome == Outcome("done", '"two \\"words\\""\n')


def test_a_program_that_raises_reports_where(sandbox: Sandbox) -> None:
    outcome = sandbox.run("x = 1\ny = x / 0\n")
    assert outcome.status == "failed"
    assert outcome.output.startswith('Traceback (most recent call last):\n  File "/tmp/program.py", line 2')
    assert outcome.output.endswith("ZeroDivisionError: division by zero\n")


def test_a_fork_bomb_gets_no_further_than_its_limit(sandbox: Sandbox) -> None:
    began = time.monotonic()
    outcome = sandbox.run(FORK_BOMB)
    assert outcome.output == "True\n" or outcome.status == "timeout"
    assert time.monotonic() - began < 30


def test_ten_gigabytes_are_not_to_be_had(sandbox: Sandbox) -> None:
    outcome = sandbox.run("block = bytearray(10 << 30)\nprint(len(block))")
    assert outcome.status == "failed"
    assert "MemoryError" in outcome.output


@pytest.mark.parametrize("program", ["while True:\n    pass", "import time\ntime.sleep(3600)"])
def test_a_program_that_does_not_end_is_ended(sandbox: Sandbox, program: str) -> None:
    began = time.monotonic()
    assert sandbox.run(program).status == "timeout"
    assert time.monotonic() - began < 30


def test_there_is_no_network(sandbox: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        outcome = sandbox.run(f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)\nprint('out')")
    assert outcome.status == "failed"
    assert "OSError" in outcome.output or "ConnectionRefusedError" in outcome.output


def test_there_are_no_files_but_its_own(sandbox: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    paths = [str(secret), "/etc/passwd", "/proc/self/environ", str(Path(__file__))]
    outcome = sandbox.run(
        f"import os\nprint([path for path in {paths!r} if os.path.exists(path)])\n"
        "open('/tmp/mine', 'w').write('mine')\nprint(open('/tmp/mine').read(), dict(os.environ))\n"
        "try:\n    open(os.__file__, 'w')\nexcept OSError as error:\n    print('refused')\n"
    )
    assert outcome == Outcome("done", "[]\nmine {}\nrefused\n")
    assert not Path("/tmp/mine").exists()
    assert sandbox.run("import os\nprint(os.path.exists('/tmp/mine'))").output == "False\n"


def test_disk_and_output_are_bounded(sandbox: Sandbox) -> None:
    filled = sandbox.run(
        "with open('/tmp/a', 'wb') as file:\n    for _ in range(64):\n        file.write(bytes(1 << 20))"
    )
    assert filled.status == "failed"
    flood = sandbox.run("while True:\n    print('x' * 1000)")
    assert len(flood.output) == 2000
    assert flood.status in ("failed", "timeout")


def test_nothing_outlives_a_program(sandbox: Sandbox) -> None:
    before = {entry for entry in os.listdir("/proc") if entry.isdigit()}
    sandbox.run("import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(3600)\n")
    deadline = time.monotonic() + 10
    sleepers = ["?"]
    while sleepers and time.monotonic() < deadline:
        sleepers = [pid for pid in os.listdir("/proc") if pid.isdigit() and pid not in before and _is_sandboxed(pid)]
        time.sleep(0.05)
    assert sleepers == []


def _is_sandboxed(pid: str) -> bool:
    try:
        return b"limits, uid, refused, code, given" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


SLEEPS = """
import sys
from rlinf_envs.sandbox import Limits, Sandbox
sandbox = Sandbox(Limits(time_s=60), kind=sys.argv[1])
print(flush=True)
sandbox.run("import time; time.sleep(600)")
"""
UNCOUNTED = {
    "System V segment": "ok = libc.shmget(0, 1 << 20, 0o1600) >= 0",
    "System V messages": "ok = libc.msgget(0, 0o1600) >= 0",
    "memory file": "ok = os.memfd_create('block') >= 0",
    "shared block, unmapped but for a page": "ok = mmap.mmap(-1, 1 << 20)",
    "shared block of /dev/zero": "ok = mmap.mmap(os.open('/dev/zero', os.O_RDWR), 1 << 20)",
    "descriptors in flight": "ok = socket.send_fds(socket.socketpair()[0], [b'.'], [0])",
    "pages in a pipe": "ok = libc.vmsplice(os.pipe()[1], (ctypes.c_size_t * 2)(id(libc), 1), 1, 0) >= 0",
    "network buffers": "ok = socket.socket(socket.AF_INET)",
    "user namespace": "ok = libc.unshare(0x10000000) == 0",
    "user namespace of a child": "ok = libc.syscall({'x86_64': 56}.get(os.uname().machine, 220), 0x10000011, 0) >= 0",
    "file in /dev/shm": "ok = open('/dev/shm/block', 'w')",
    "file at the root": "ok = open('/block', 'w')",
    "standard input that grows": "ok = os.ftruncate(0, 1 << 30) is None",
}


@pytest.mark.parametrize("attempt", UNCOUNTED.values(), ids=UNCOUNTED)
def test_memory_that_no_limit_counts_is_not_to_be_had(sandbox: Sandbox, attempt: str) -> None:
    outcome = sandbox.run(
        "import ctypes, mmap, os, socket\nlibc = ctypes.CDLL(None)\n"
        f"try:\n    {attempt}\nexcept OSError:\n    ok = False\nprint('taken' if ok else 'refused')",
        "input",
    )
    assert outcome == Outcome("done", "refused\n")


def test_ordinary_programs_keep_what_they_need(sandbox: Sandbox) -> None:
    program = """
import asyncio, mmap, os, subprocess, sys, threading
thread = threading.Thread(target=asyncio.run, args=(asyncio.sleep(0),))
thread.start()
thread.join()
print(subprocess.run([sys.executable, "-c", "print(2 + 2)"], capture_output=True, check=True).stdout)
with open("/tmp/numbers", "wb+") as file, open(os.devnull, "w") as nowhere:
    file.write(b"123")
    file.flush()
    print(mmap.mmap(file.fileno(), 0)[:], nowhere.write("1"), len(os.urandom(2)))
"""
    assert sandbox.run(program) == Outcome("done", "b'4\\n'\nb'123' 1 2\n")


def test_empty_files_are_counted() -> None:
    outcome = Sandbox(Limits(time_s=20.0, files_mb=1)).run("for n in range(10**7):\n    open(f'/tmp/{n}', 'w').close()")
    assert outcome == Outcome("failed", "\nended: it made over 256 files in /tmp\n")


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_dies_with_the_process_that_started_it(kind: str) -> None:
    try:
        Sandbox(kind=kind)  # type: ignore[arg-type]
    except SettingError as error:
        pytest.skip(str(error))
    with subprocess.Popen([sys.executable, "-c", SLEEPS, kind], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        started = [pid for pid in _children_of(parent.pid, within_s=10) if _is_sandboxed(pid)]
        parent.kill()
    assert started
    deadline = time.monotonic() + 10
    while any(_is_sandboxed(pid) for pid in started) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_is_sandboxed(pid) for pid in started)


def _children_of(pid: int, *, within_s: float) -> list[str]:
    """Processes below ``pid``, once one of them is in the sandbox."""
    deadline = time.monotonic() + within_s
    found = [str(pid)]
    while not any(_is_sandboxed(each) for each in found[2:]) and time.monotonic() < deadline:
        found = [str(pid)]
        for each in found:
            with suppress(OSError):
                found += Path(f"/proc/{each}/task/{each}/children").read_text().split()
        time.sleep(0.05)
    return found


def test_a_limit_that_is_none_is_refused() -> None:
    with pytest.raises(SettingError, match=r"sandbox\.time_s must be above 0"):
        Limits(time_s=0)
