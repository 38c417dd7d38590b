"""The loops: train, evaluate, warm start. ``run`` is what the command line calls, and :func:`rlinf.fit` in Python."""

from __future__ import annotations

from rlinf.train.run import RunResult, evaluate_run, run, run_sft

__all__ = ["RunResult", "evaluate_run", "run", "run_sft"]
