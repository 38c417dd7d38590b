"""However the driver ends, nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from rlinf.cluster import WorkerGroup
from rlinf.cluster.vital_signs import is_alive

# What runs in the background of a script has SIGINT ignored, and its children inherit that; in a terminal it is not.
MINE = "rlinf-ray-*/session_*_"
DRIVER = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from rlinf.cluster import connect
from rlinf.schema.cluster import ClusterConfig

class Sleeper:
    def __init__(self, info): pass
    def pid(self): return os.getpid()
    def stall(self): time.sleep(600)

if __name__ == "__main__":
    try:
        with connect(ClusterConfig()) as cluster:
            group = cluster.spawn("sleeper", Sleeper)
            print(group.call("pid")[0], flush=True)
            group.call("stall")
    except KeyboardInterrupt:
        sys.exit(130)
"""


def _descendants(pid: int) -> set[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:  # it ended meanwhile
                continue
    found, frontier = set(), {pid}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier}
        found |= frontier
    return found


def _listening(pids: set[int]) -> set[str]:
    """The addresses on which the processes listen."""
    listed = psutil.net_connections(kind="tcp")
    return {one.laddr.ip.removeprefix("::ffff:") for one in listed if one.pid in pids and one.status == "LISTEN"}


def _driver(folder: Path) -> subprocess.Popen[str]:
    script = folder / "driver.py"
    script.write_text(DRIVER)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(
        [sys.executable, str(script)], env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def _agent(family: set[int]) -> int | None:
    """The process of the dashboard's agent, whose port the raylet waits for."""
    for pid in family:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:  # it ended meanwhile
            continue
        if b"dashboard/agent.py" in command and b"raylet/raylet" not in command:
            return pid
    return None


@pytest.mark.slow  # a Ray of its own each time; with every commit one driver is killed in tests/faults
@pytest.mark.parametrize(
    ("kind", "code"),
    [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_a_driver_that_is_stopped_leaves_no_process_behind_and_other_clusters_alone(
    tmp_path: Path, ray_pair: WorkerGroup, kind: signal.Signals, code: int
) -> None:
    others = ray_pair.call("pid")
    driver = _driver(tmp_path)
    assert driver.stdout is not None
    try:
        worker = int(driver.stdout.readline())
        family = _descendants(driver.pid)
        assert worker in family
        assert _listening(family) == {"127.0.0.1"}
        assert os.getpgid(driver.pid) not in {os.getpgid(pid) for pid in family}  # a terminal's signals pass them by
        # As a terminal does: Ctrl-C goes to the whole foreground group.
        os.killpg(driver.pid, kind) if kind == signal.SIGINT else driver.kill()
        assert driver.wait(timeout=90) == code
        give_up = time.monotonic() + 10
        while left := {pid for pid in family if is_alive(pid)} or list(Path("/tmp").glob(f"{MINE}{driver.pid}")):
            assert time.monotonic() < give_up, left
            time.sleep(0.2)
        assert ray_pair.call("pid") == others
    finally:
        driver.kill()
        driver.stdout.close()


@pytest.mark.slow  # 25 s
def test_an_agent_of_ray_that_is_slow_to_come_up_is_waited_for(tmp_path: Path) -> None:
    """On a busy machine: the raylet alone gives up on it after 15 s, and the run with it."""
    driver = _driver(tmp_path)
    assert driver.stdout is not None
    try:
        give_up = time.monotonic() + 120
        while (agent := _agent(_descendants(driver.pid))) is None:
            assert time.monotonic() < give_up
            time.sleep(0.05)
        os.kill(agent, signal.SIGSTOP)
        time.sleep(20)
        os.kill(agent, signal.SIGCONT)
        assert int(driver.stdout.readline()) in _descendants(driver.pid)
    finally:
        driver.kill()
        driver.stdout.close()
