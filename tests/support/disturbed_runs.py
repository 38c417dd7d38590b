"""Runs of the real command on Ray that are disturbed at a known moment, and what they leave behind."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tiny_runs import mapping

from rlinf.cluster.vital_signs import is_alive
from rlinf.config import load
from rlinf.train import run

MOMENTS = {
    "start": r"starting workers",
    "warm start": r"step 1 of the warm start: update",
    "step": r"step 1: collect",
    "update": r"step 1: update",
    "evaluation": r"step 1: evaluate",
    "checkpoint": r"step 1: checkpoint",
    "report": r"run: report",
}
"""What the run writes at each moment (`RLINF_LOG=debug`)."""
GONE_S = 10.0
"""Seconds after the end of a driver by which nothing of it is left."""


def write_config(folder: Path, **others: Any) -> Path:
    """A text run of two steps with a sampler, an env worker and a learner on Ray; each step is saved. ``others`` stand
    instead of whole sections."""
    sections: dict[str, Any] = {
        "run": {"max_steps": 2},
        "sft": {"steps": 2},
        "evaluation": {"every": 1},
        "cluster": {"backend": "ray", "max_restarts": 3, "heartbeat_s": 1.0, "heartbeat_timeout_s": 5.0},
        "logging": {"progress": "plain"},
        **others,
    }
    file = folder / "run.yaml"
    file.write_text(json.dumps(mapping(folder / "run", **sections)))
    return file


def params_sha256(folder: Path) -> str:
    return str(json.loads((folder / "run" / "summary.json").read_text())["params_sha256"])


class RayRun:
    """The command in a process of its own, in a session of its own; what it writes is read as it comes."""

    def __init__(self, file: Path) -> None:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "RLINF_LOG": "debug",
            "PYTHONUNBUFFERED": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", "import rlinf.cli, sys; sys.exit(rlinf.cli.main())", "train", str(file)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # In the background of a script SIGINT is ignored, and children inherit that; in a terminal it is not.
            preexec_fn=_enable_interrupts,
        )
        self.lines: list[str] = []
        self._news = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self.lines.append(line.rstrip())
                self._news.notify_all()

    def await_line(self, pattern: str, timeout_s: float = 240.0) -> re.Match[str]:
        """The first match in what the run has written, as soon as it is there."""

        def found() -> re.Match[str] | None:
            return next((match for line in self.lines if (match := re.search(pattern, line))), None)

        with self._news:
            assert self._news.wait_for(lambda: found() or self._process.poll() is not None, timeout_s), self.output
        match = found()
        assert match is not None, self.output
        return match

    def process_of(self, victim: str) -> int:
        """The process id of ``driver``, ``raylet``, or the first worker of a group."""
        if victim == "driver":
            return self.pid
        if victim == "raylet":
            return int(self.await_line(r"of raylet (\d+)")[1])
        return int(self.await_line(rf"{victim} rank 0 is process (\d+)")[1])

    def send(self, victim: str, number: int) -> None:
        """A stopped driver is woken again: it is the workers whose standing still has to be noticed."""
        pid = self.process_of(victim)
        try:
            os.kill(pid, number)
        except ProcessLookupError:  # at its end already: nothing is disturbed then
            return
        if number == signal.SIGSTOP and victim == "driver":
            time.sleep(1.0)
            os.kill(pid, signal.SIGCONT)

    def wait(self, timeout_s: float = 280.0) -> int:
        return self._process.wait(timeout_s)

    def __enter__(self) -> RayRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def folder(self) -> Path | None:
        """Where its Ray is; None before it starts one."""
        found = [path for path in Path("/tmp").glob("rlinf-ray-*") if list(path.glob(f"session_*_{self.pid}"))]
        return found[0] if found else None


def run_here(file: Path) -> None:
    """The run of the file in this process, for time: where its workers are changes nothing of its numbers."""
    config = load(file)
    run(dataclasses.replace(config, cluster=dataclasses.replace(config.cluster, backend="local")), report=False)


def await_nothing_left(pids: set[int], folder: Path | None) -> None:
    """Fails where one of the processes, or the folder of Ray, is there for more than :data:`GONE_S`."""
    give_up = time.monotonic() + GONE_S
    while (left := {pid for pid in pids if is_alive(pid)}) or (folder is not None and folder.exists()):
        assert time.monotonic() < give_up, (left, folder)
        time.sleep(0.1)


def family(pid: int) -> set[int]:
    """The process and all its descendants."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in (line.split() for line in listed.splitlines())}
    found, frontier = {pid}, {pid}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier} - found
        found |= frontier
    return found


def _enable_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup make test-nightly` ignores it
