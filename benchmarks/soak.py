"""Kills a random worker of a run again and again.

    python benchmarks/soak.py [--minutes 120] [--every 120] [--write] [FILE key=value ...]

Whatever ends the run but the clock, the same command continues it. At the end steps must follow each other without a
gap or a repetition, and memory, open files and Ray's folder must not have grown after the first quarter: otherwise the
exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from records import Figure, add_output, save

ROOT = Path(__file__).resolve().parent.parent
FILE = "config/math/quickstart.yaml"
SETTINGS = (
    "run.max_steps=1000000",
    "sft.steps=20",
    "evaluation.every=0",
    "checkpoint.every=10",
    "checkpoint.keep=2",
    "env.num_workers=2",
    "rollout.num_samplers=2",
    "cluster.max_restarts=1000",
    "logging.progress=none",
)
SAMPLE_S = 5.0
NO_ACTORS = (b"ray::IDLE", b"ray::DashboardAgent", b"ray::RuntimeEnvAgent")
"""Ray's own agents have such names too, and Ray on the machine ends with them."""
RUN = "run"
GROWTH = 1.5
"""Of memory, files and disk over their largest values in the first quarter."""


@dataclass(frozen=True)
class Sample:
    """The driver at one moment."""

    memory_mb: float
    files: int
    disk_mb: float
    """Ray's folder and other scratch: the run directory's records grow by a line a step."""


def descendants(pid: int) -> Iterator[int]:
    """All processes below ``pid``."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:  # it has ended
                continue
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    waiting = [pid]
    while waiting:
        for child in parents.get(waiting.pop(), []):
            yield child
            waiting.append(child)


def workers(pid: int) -> list[int]:
    """Ray workers below ``pid`` that hold an actor."""
    found = []
    for child in descendants(pid):
        try:
            command = Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            continue
        if command.startswith(b"ray::") and not command.startswith(NO_ACTORS):
            found.append(child)
    return found


def sample(pid: int, folder: Path) -> Sample | None:
    """The driver now; None where it has just ended."""
    status = Path(f"/proc/{pid}/status").read_text()
    memory = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")]
    if not memory:
        return None
    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Sample(memory[0] / 1e3, files, (disk_bytes(folder) - disk_bytes(folder / RUN)) / 1e6)


def disk_bytes(folder: Path) -> int:
    """Of all files below a folder that others write: one that goes while it is read counts as gone."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total


def soak(
    command: list[str], environment: dict[str, str], folder: Path, seconds: float, every: float
) -> tuple[list[Sample], int, int]:
    """Runs the command, and again where it ends; kills a worker ``every`` seconds. (samples, kills, starts)"""
    chosen, samples = random.Random(0), list[Sample]()
    until, due = time.monotonic() + seconds, time.monotonic() + every
    kills = starts = 0
    while time.monotonic() < until:
        run = subprocess.Popen(command, env=environment, cwd=ROOT)
        starts += 1
        while run.poll() is None and time.monotonic() < until:
            time.sleep(SAMPLE_S)
            alive = workers(run.pid)
            if time.monotonic() >= due and alive:
                os.kill(chosen.choice(alive), signal.SIGKILL)
                kills, due = kills + 1, time.monotonic() + every
                print(f"{time.monotonic() - until + seconds:.0f} s: kill {kills}", flush=True)
            if run.poll() is None and (seen := sample(run.pid, folder)) is not None:
                samples.append(seen)
        run.terminate()
        run.wait(timeout=300)
    print(f"{kills} workers killed, the command was started {starts} times")
    return samples, kills, starts


def problems(samples: list[Sample], run: Path) -> list[str]:
    trained, found = trained_steps(run), []
    if trained != list(range(1, len(trained) + 1)):
        found.append("steps are missing or there twice")
    for name in ("memory_mb", "files", "disk_mb"):
        before, after = peaks(samples, name)
        print(f"{name}: at most {before:.0f} in the first quarter, {after:.0f} after it")
        if after > GROWTH * before:
            found.append(f"{name} grows")
    print(f"{len(trained)} steps; the run directory has {disk_bytes(run) / 1e6:.0f} MB")
    return found


def trained_steps(run: Path) -> list[int]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["step"] for line in lines if "train/loss" in line]


def peaks(samples: list[Sample], name: str) -> tuple[float, float]:
    """The largest value in the first quarter, and after it."""
    first, rest = samples[: max(1, len(samples) // 4)], samples[len(samples) // 4 :]
    return max(getattr(one, name) for one in first), max(getattr(one, name) for one in rest)


def figures(samples: list[Sample], kills: int, starts: int, run: Path, minutes: float) -> list[Figure]:
    case = f"{minutes:g} minutes"
    before, after = peaks(samples, "memory_mb")
    return [
        Figure(case, "actors killed", kills),
        Figure(case, "restarts by the same command", starts - 1),
        Figure(case, "steps, each once and in order", len(trained_steps(run))),
        Figure("driver memory, at most", "first quarter, MB", round(before)),
        Figure("driver memory, at most", "later, MB", round(after)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--every", type=float, default=120.0, help="seconds from one kill to the next")
    parser.add_argument("settings", nargs="*", help="a file and its settings, instead of the quickstart")
    add_output(parser, "soak")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as scratch:
        folder = Path(scratch)
        # Ray's folders go there too, so that what is left behind is seen and removed.
        environment = {**os.environ, "RAY_TMPDIR": scratch, "TMPDIR": scratch}
        given = options.settings or [FILE]
        command = [
            sys.executable,
            "-m",
            "rlinf.cli",
            "train",
            given[0],
            *SETTINGS,
            *given[1:],
            f"run.dir={folder / RUN}",
        ]
        samples, kills, starts = soak(command, environment, folder, options.minutes * 60, options.every)
        found = problems(samples, folder / RUN)
        shutil.copy(folder / RUN / "metrics.jsonl", Path.cwd() / "soak_metrics.jsonl")
        if options.write:
            save(options.write, figures(samples, kills, starts, folder / RUN, options.minutes), intervals="")
    print("\n".join(found) or "no step lost or doubled, nothing grows")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
