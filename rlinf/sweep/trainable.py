"""A trial as Ray Tune sees it."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any, cast

from ray import tune

from rlinf.sweep.load import Sweep
from rlinf.sweep.process import ObjectiveTail, RunProcess, TrialFailed
from rlinf.sweep.records import TrialRecord
from rlinf.sweep.settings import plan_of
from rlinf.sweep.validate import trial_config
from rlinf.train.run_dir import RunDirectory

OBJECTIVE, STEP = "objective", "step"
_POLL_S = 0.2
# What a trial hands on, with its newest checkpoint, to one that replaces it.
_HANDED_ON = ("tokenizer", "metrics.jsonl", "replay")
_ORIGIN = "origin.json"


class Trial(tune.Trainable):
    """One step is one new value of the sweep's metric. The run itself is a process of its own.

    So this actor survives and reports what happens to the run (a crash in native code, memory), and the run
    starts no second Ray.

    The run directory is the trial's memory: a process that starts after a kill finds it and goes on. Tune's
    checkpoints are copies of it, which population-based training hands from trial to trial.
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
        schedule = sweep.config.schedule
        self.hold_every = schedule.perturb_every if schedule.name == "pbt" else 0
        self.held_at = 0
        self.run_config = trial_config(sweep, plan.setting, seed=plan.seed, run_dir=self.record.run_dir)
        path, success_key = self.record.run_dir / "metrics.jsonl", self.run_config.env.success_key
        self.values = ObjectiveTail(path, sweep.config.metric, sweep.config.mode, success_key)

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
        values = self.values
        return {OBJECTIVE: values.value, "best": values.best, STEP: values.steps, "done": ended}

    def _advance(self) -> bool:
        """Wait for the next value of the metric (of a run that holds: until it does), or for the end (True)."""
        if self.process is not None:
            self.process.go_on()
        elif self.record.steps_done() != self.run_config.run.max_steps:
            newest = RunDirectory(self.record.run_dir).latest()
            self.held_at = newest.step if newest is not None else 0
            threads = max(1, int(self.sweep.config.resources.cpus))
            self.process = RunProcess(self.record.folder, self.run_config, threads=threads, hold_every=self.hold_every)
        while True:
            ended = self.process is None or self._ended(self.process)
            lines = self.values.read()
            if ended or (self._holds() if self.hold_every else lines):
                break
            time.sleep(_POLL_S)
        self.values.require_value()
        return ended

    def _ended(self, process: RunProcess) -> bool:
        """Return whether the process is over, and record what it used; raise TrialFailed for its error."""
        before = getrusage(RUSAGE_CHILDREN)
        try:
            return process.ended()
        finally:
            after = getrusage(RUSAGE_CHILDREN)
            self.record.cpu_s += after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def _holds(self) -> bool:
        """Return whether the run waits at a step at which it has not waited before.

        Its checkpoint is the last thing written."""
        step = self.values.steps
        saved = self.record.run_dir / "checkpoints" / f"step_{step:06d}"
        last = self.run_config.run.max_steps
        if step % self.hold_every or not self.held_at < step < last or not saved.exists():
            return False
        self.held_at = step
        return True

    def cleanup(self) -> None:
        if self.process is not None:
            self.process.stop()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        run_dir, target = self.record.run_dir, Path(checkpoint_dir)
        newest = RunDirectory(run_dir).latest()
        result = [] if newest is None else [newest.folder]
        for path in [*result, *(run_dir / name for name in _HANDED_ON)]:
            _copy(path, target / path.relative_to(run_dir))
        origin = {"from": self.record.folder.name, "step": 0 if newest is None else newest.step}
        (target / _ORIGIN).write_text(json.dumps(origin))

    def load_checkpoint(self, checkpoint: Any) -> None:
        source = Path(str(checkpoint))
        origin = json.loads((source / _ORIGIN).read_text())
        taken = {**origin, "setting": self.record.setting}
        if origin["from"] == self.record.folder.name or self.record.lineage[-1:] == [taken]:
            return  # its own run directory is there, and newer
        shutil.rmtree(self.record.run_dir, ignore_errors=True)
        for path in source.iterdir():
            # Tune's own notes begin with a dot; so do files inside of sharded checkpoints, which are kept.
            if path.name != _ORIGIN and not path.name.startswith("."):
                _copy(path, self.record.run_dir / path.name)
        self.values.begin_again()
        self.record.lineage.append(taken)
        self.record.write()


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    elif source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
