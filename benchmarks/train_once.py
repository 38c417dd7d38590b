"""One training of a recipe as a user starts it, and what it cost."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Trained:
    """What a run left behind."""

    lines: list[dict[str, float]]
    """Its metrics, an entry a step."""
    summary: dict[str, Any]
    seconds: float
    cpu_seconds: float
    """Of the whole tree of processes."""

    @property
    def env_steps(self) -> int:
        return int(max(line.get("rollout/env_steps_total", 0) for line in self.lines))


def kept(file: Path, measure: Callable[[], Any]) -> Any:
    """Return what ``file`` holds as JSON; without it, measure and write it first."""
    if not file.exists():
        file.write_text(json.dumps(measure()))
    return json.loads(file.read_text())


def train_once(file: Path, folder: Path, seed: int, settings: Sequence[str] = (), *, command: str = "train") -> Trained:
    """`rlinf train FILE` (or another ``command``) into ``folder``, in a process of its own and with one thread."""
    quiet = ("cluster.backend=local", "logging.progress=none", "logging.tensorboard=false")
    overrides = (f"run.dir={folder}", f"run.seed={seed}", *quiet, *settings)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    words = [sys.executable, "-m", "rlinf.cli", command, str(file), *overrides]
    subprocess.run(words, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Trained(
        [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()],
        json.loads((folder / "summary.json").read_text()),
        time.monotonic() - began,
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    )
