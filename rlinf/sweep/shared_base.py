"""Trials with low-rank adapters on one base, one after another in one process (`share_base`).

They take turns because products over rows of several adapters would round otherwise than those of a run alone. What
they share is the start of a process, the base model, and the evaluation of the untrained policy.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from rlinf.base.child_process import ChildProcess
from rlinf.base.durable import write_atomically
from rlinf.config.record import stored_yaml, written
from rlinf.sweep.live import LiveView
from rlinf.sweep.load import Sweep
from rlinf.sweep.process import ObjectiveTail
from rlinf.sweep.records import TrialRecord
from rlinf.sweep.settings import TrialPlan
from rlinf.sweep.validate import trial_config

_POLL_S = 0.2
_SAVING_S = 60.0
"""How long a run that is stopped may take to write its checkpoint."""


class _Followed:
    """A trial, as its files show it."""

    def __init__(self, sweep: Sweep, plan: TrialPlan) -> None:
        self.plan, self.folder = plan, sweep.folder / "trials" / plan.folder_name
        self.config = trial_config(sweep, plan.setting, seed=plan.seed, run_dir=self.folder / "run")
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / "config.yaml", stored_yaml(self.config))
        path, success_key = self.folder / "run" / "metrics.jsonl", self.config.env.success_key
        self._values = ObjectiveTail(path, sweep.config.metric, sweep.config.mode, success_key)
        self._unbegun = self.stamp()
        self.record = TrialRecord.read(self.folder) if self._unbegun else TrialRecord(plan.number, {}, plan.seed)
        self.allowed = self.record.failures + sweep.config.retries + 1
        """Failures after which it is not tried again."""
        self.status = "waiting"

    def stamp(self) -> int:
        """Return when `trial.json` was written; 0 if it does not exist."""
        file = self.folder / "trial.json"
        return file.stat().st_mtime_ns if file.exists() else 0

    @property
    def is_open(self) -> bool:
        """Whether it is neither finished nor given up."""
        return self.status != "finished" and self.record.failures < self.allowed

    def order(self) -> dict[str, Any]:
        """Return what its process has to have."""
        plan = self.plan
        record = {"number": plan.number, "setting": plan.setting, "seed": plan.seed}
        attempts = self.allowed - self.record.failures
        return {
            "folder": str(self.folder.resolve()),
            "record": record,
            "config": written(self.config),
            "attempts": attempts,
        }

    def show(self, view: LiveView) -> None:
        """Hand to the view what is new since the last call."""
        if self.stamp() == self._unbegun:
            return
        before, failures = self.status, self.record.failures
        self.record = TrialRecord.read(self.folder)
        self.status = self.record.status
        if before == "waiting":
            view.started(self.folder.name, self.plan.setting)
        if self._values.read() and self._values.value is not None:
            view.reported(self.folder.name, self._values.steps, self._values.value)
        if self.record.failures > failures:
            view.failed(self.folder.name, self.record.error or "", again=self.is_open)
        elif self.status == "finished" != before:
            view.ended(self.folder.name, "finished")

    def died(self, how: str) -> None:
        """Record that the process ended in it."""
        self.record.status, self.record.error = "failed", how
        self.record.failures += 1
        self.record.write()


def fit_on_one_base(sweep: Sweep, waiting: Sequence[TrialPlan], view: LiveView) -> None:
    """Run the trials in turn. One that fails, or ends the process, is tried as often as `retries` allows.

    :raises KeyboardInterrupt: the running trial has written its checkpoint.
    """
    trials = [_Followed(sweep, plan) for plan in waiting]
    while left := [one for one in trials if one.is_open]:
        if not _run(sweep, left, view):
            return


def _run(sweep: Sweep, trials: Sequence[_Followed], view: LiveView) -> bool:
    """Run a process over the trials until it ends; return False if the time is up.

    A trial in which the process dies has failed once more."""
    threads = max(1, int(sweep.config.resources.cpus))
    process = ChildProcess(
        [sys.executable, "-m", "rlinf.sweep.shared_process", str(sweep.folder)],
        name="the process of the trials",
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        input=True,
        session=True,  # Ctrl-C comes to it from here, once: its run writes a checkpoint
        tied=False,  # its input is its leash
    )
    order = {
        "metric": sweep.config.metric,
        "mode": sweep.config.mode,
        "trials": [one.order() for one in trials],
    }
    before = [one.stamp() for one in trials]
    process.send(json.dumps(order).encode() + b"\n")
    try:
        while (code := process.wait(_POLL_S)) is None:
            for one in trials:
                one.show(view)
            if view.time_is_up():
                os.kill(process.pid, signal.SIGTERM)
                process.wait(_SAVING_S)
                return False
    except KeyboardInterrupt:
        os.kill(process.pid, signal.SIGTERM)
        process.wait(_SAVING_S)
        raise
    finally:
        process.kill()
    for one in trials:
        one.show(view)
        if code and one.status == "running":
            one.died(f"{process.how_it_ended()}{process.last_words()}")
            one.show(view)
    if code and [one.stamp() for one in trials] == before:
        raise RuntimeError(f"{process} {process.how_it_ended()} before the first trial{process.last_words()}")
    return True
