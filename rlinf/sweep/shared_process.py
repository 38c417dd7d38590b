"""The process of a sweep with `share_base`: `python -m rlinf.sweep.shared_process SWEEP`.

SWEEP is the sweep's folder, for the list of processes. The first line of its standard input is JSON: the metric, and
record, configuration and attempts left of each trial. They run one after another, with one base model in memory, and
each ends with its status in `trial.json`. The process lives no longer than the one that started it.
"""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any

from rlinf.base.redaction import redact_warnings, redacted
from rlinf.config import load_mapping
from rlinf.models.kept_base import keep_base
from rlinf.sweep.process import ObjectiveTail, TrialFailed
from rlinf.sweep.records import TrialRecord
from rlinf.sweep.trial_process import Leash, first_line
from rlinf.train import run
from rlinf.train.evaluation.in_training import FirstEvaluations


def main() -> int:
    """Train the trials that the first line describes; return the exit code."""
    redact_warnings()
    order = json.loads(first_line())
    Leash(0)
    first = FirstEvaluations()
    with keep_base():
        for trial in order["trials"]:
            for _ in range(trial["attempts"]):
                if train(trial, order["metric"], order["mode"], first):
                    break
    return 0


def train(trial: dict[str, Any], metric: str, mode: str, first: FirstEvaluations) -> bool:
    """Train a trial, or go on with it; write its status, and return whether it finished.

    :raises Stopped: a signal came, and its checkpoint is written; its status stays `running`.
    """
    record = TrialRecord(**trial["record"], folder=Path(trial["folder"]))
    known = record.folder / "trial.json"
    record = TrialRecord.read(record.folder) if known.exists() else record
    record.status, record.setting = "running", trial["record"]["setting"]
    record.write()
    with (record.folder / "log.txt").open("a") as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        try:
            config = load_mapping(trial["config"], source=str(record.folder))
            run(config, report=False, first_evaluations=first)
            values = ObjectiveTail(record.run_dir / "metrics.jsonl", metric, mode, config.env.success_key)
            values.read()
            values.require_value()
        except TrialFailed as failure:
            record.error = str(failure)
        except Exception:
            record.error = redacted(traceback.format_exc())[-8000:]
            print(record.error)
        else:
            record.error = None
    record.failures += record.error is not None
    record.status = "finished" if record.error is None else "failed"
    record.write()
    return record.error is None


if __name__ == "__main__":
    sys.exit(main())
