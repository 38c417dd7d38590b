"""A trial as Ray Tune sees it."""

from __future__ import annotations

import math
import os
import shutil
import time
from pathlib import Path
from typing import Any, cast

from ray import tune

from rlinf.sweep.load import Sweep
from rlinf.sweep.process import MetricTail, RunProcess, TrialFailed
from rlinf.sweep.records import TrialRecord
from rlinf.sweep.settings import plan_of
from rlinf.sweep.validate import trial_config

OBJECTIVE, STEP = "objective", "step"
_POLL_S = 0.2


class Trial(tune.Trainable):
    """One step is one new value of the sweep's metric. The run itself is a process of its own, so that whatever
    happens to it (a crash in native code, memory) this actor lives to tell, and so that it starts no second Ray.

    The run directory is the trial's memory: whoever comes after a kill finds it and goes on. Tune's checkpoints are
    copies of it, which population-based training hands from trial to trial.
    """

    def setup(self, config: dict[str, Any], sweep: Sweep | None = None) -> None:
        assert sweep is not None, "the sweep comes by tune.with_parameters"
        self.sweep, self.process = sweep, cast("RunProcess | None", None)
        os.chdir(sweep.home)
        plan, folder_name = plan_of(config, sweep.config.seeds)
        folder = sweep.folder / "trials" / folder_name
        known = (folder / "trial.json").exists()
        self.record = TrialRecord.read(folder) if known else TrialRecord(plan.number, {}, plan.seed, folder=folder)
        self.record.setting, self.record.status = plan.setting, "running"
        self.record.write()
        self.best: float | None = None
        self.value: float | None = None
        self.steps_seen = 0
        self.tail = MetricTail(self.record.run_dir / "metrics.jsonl")
        self.run_config = trial_config(sweep, plan.setting, seed=plan.seed, run_dir=self.record.run_dir)

    def step(self) -> dict[str, Any]:
        try:
            ended = self._advance()
        except TrialFailed as failure:
            self.record.status, self.record.error = "failed", str(failure)
            self.record.failures += 1
            self.record.write()
            raise
        if ended:
            self.record.status, self.record.error = "finished", None
            self.record.write()
        return {OBJECTIVE: self.value, "best": self.best, STEP: self.steps_seen, "done": ended}

    def _advance(self) -> bool:
        """Waits for the next value of the metric, or for the end (True)."""
        if self.process is None and self.record.steps_done() != self.run_config.run.max_steps:
            self.process = RunProcess(self.record.folder, self.run_config, threads=self._threads())
        while True:
            ended = self.process is None or self.process.ended()
            if self._read_values() and not ended:
                return False
            if ended:
                if self.value is None:
                    raise TrialFailed(f"the run ended and never logged {self.sweep.config.metric}")
                return True
            time.sleep(_POLL_S)

    def _read_values(self) -> bool:
        """Whether there were new values of the metric."""
        found = False
        better = max if self.sweep.config.mode == "max" else min
        for numbers in self.tail.read():
            self.steps_seen = numbers["step"]
            value = numbers.get(self.sweep.config.metric)
            if value is not None and math.isfinite(value):
                self.value, found = value, True
                self.best = value if self.best is None else better(self.best, value)
        return found

    def cleanup(self) -> None:
        if self.process is not None:
            self.process.stop()
        if self.record.status == "running":
            self.record.status = "stopped"
            self.record.write()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        run_dir, target = self.record.run_dir, Path(checkpoint_dir)
        newest = sorted(run_dir.glob("checkpoints/step_*"))[-1:]
        for path in [*newest, run_dir / "tokenizer", run_dir / "metrics.jsonl"]:
            _copy(path, target / path.relative_to(run_dir))
        (target / "donor.txt").write_text(str(run_dir))

    def load_checkpoint(self, checkpoint: Any) -> None:
        source = Path(str(checkpoint))
        if (source / "donor.txt").read_text() == str(self.record.run_dir) and not self._changed():
            return  # its own run directory is there, and newer
        shutil.rmtree(self.record.run_dir, ignore_errors=True)
        shutil.copytree(source, self.record.run_dir, ignore=shutil.ignore_patterns(".*", "donor.txt"))
        self.tail = MetricTail(self.record.run_dir / "metrics.jsonl")

    def _changed(self) -> bool:
        """Whether the setting is another than that of the run directory (population-based training copied a better)."""
        from rlinf.config import load

        saved = self.record.run_dir / "config.yaml"
        return not saved.exists() or load(saved) != self.run_config

    def _threads(self) -> int:
        return max(1, int(self.sweep.config.resources.cpus))


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    elif source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
