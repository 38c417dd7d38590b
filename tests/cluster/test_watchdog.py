"""What the watchdog of a cluster ends: the processes that the cluster started, and no others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from rlinf.cluster import watchdog
from rlinf.cluster.vital_signs import is_alive

_SLEEP = "import sys; sys.stdout.write('up\\n'); sys.stdout.flush(); sys.stdin.read()"
_PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {_SLEEP!r}], env={{}}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""
Start = Callable[..., tuple[subprocess.Popen[str], str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a program that waits, and gives it with the first line that it writes."""
    with ExitStack() as stack:

        def started(code: str, marks: str | None, **options: object) -> tuple[subprocess.Popen[str], str]:
            environment = os.environ | ({} if marks is None else {watchdog.MARK: marks})
            process: subprocess.Popen[str] = subprocess.Popen(
                [sys.executable, "-c", code],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                **options,  # type: ignore[call-overload]
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout is not None
            return process, process.stdout.readline().strip()

        yield started


def test_only_what_the_cluster_started_is_ended(tmp_path: Path, start: Start) -> None:
    ours, others = tmp_path / "rlinf-ray-a", tmp_path / "rlinf-ray-ab"
    ours.mkdir()
    others.mkdir()
    driver, _ = start(_SLEEP, None)
    worker, orphan = start(_PARENT, str(ours))
    nested, _ = start(_SLEEP, os.pathsep.join([str(ours), str(others)]))
    with (ours / "driver.log").open("w") as log:  # as of a driver that joined the cluster
        joined, _ = start(_SLEEP, None, stderr=log)
        other, _ = start(_SLEEP, str(others), stderr=log)
    assert watchdog.members(str(ours)) == {worker.pid, int(orphan), nested.pid}
    dog = subprocess.run(
        [sys.executable, "-I", "-S", watchdog.__file__, str(ours), str(driver.pid)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert dog.stderr.startswith(f"The program (pid {driver.pid}) ended without a word")
    assert not any(is_alive(pid) for pid in (worker.pid, int(orphan), nested.pid))
    assert all(one.poll() is None for one in (driver, joined, other))
    assert not ours.exists()
    assert others.exists()


def test_a_raylet_that_is_stopped_is_ended(
    start: Start, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watchdog, "_STOPPED_S", 0.1)
    monkeypatch.setattr(watchdog, "_CHECK_S", 0.02)
    raylet, _ = start(_SLEEP, None)
    reader, writer = os.pipe()
    with ThreadPoolExecutor() as pool:
        received = pool.submit(watchdog.listen, reader, os.getpid())
        os.write(writer, b"%d\n" % raylet.pid)
        raylet.send_signal(signal.SIGSTOP)
        assert raylet.wait(timeout=30) == -signal.SIGKILL
        os.write(writer, watchdog.FAREWELL)
        os.close(writer)
        assert received.result(timeout=30).endswith(watchdog.FAREWELL)
    os.close(reader)
    assert f"raylet (pid {raylet.pid}) has been stopped" in capfd.readouterr().err


def test_a_closed_terminal_does_not_prevent_cleaning_up(tmp_path: Path) -> None:
    folder = tmp_path / "rlinf-ray-a"
    folder.mkdir()
    reader, writer = os.pipe()
    os.close(reader)
    try:
        dog = [sys.executable, "-I", "-S", watchdog.__file__, str(folder), str(os.getpid())]
        subprocess.run(dog, stdin=subprocess.DEVNULL, stderr=writer, timeout=60, check=True)
    finally:
        os.close(writer)
    assert not folder.exists()
