"""The loops: train, evaluate, warm start. ``run`` is what the command line calls."""

from rlinf.train.run import RunResult, evaluate_run, run, run_sft

__all__ = ["RunResult", "evaluate_run", "run", "run_sft"]
