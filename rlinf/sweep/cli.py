"""`rlinf sweep FILE.yaml [key=value ...]`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rlinf.sweep.load import Sweep, load_sweep
from rlinf.sweep.settings import TrialPlan, plan_trials
from rlinf.sweep.validate import validate

FAILED, INTERRUPTED = 1, 130


def main(arguments: Sequence[str]) -> int:
    """Validates every trial, runs what is not finished, aggregates, writes the report."""
    parser = argparse.ArgumentParser(
        prog="rlinf sweep", description="Many runs from one file; the same command resumes."
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a sweep file")
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="replace keys of the sweep file")
    parser.add_argument("--check", action="store_true", help="validate, list the trials, start nothing")
    options = parser.parse_args(arguments)
    sweep = load_sweep(options.file, options.overrides)
    plans = [] if sweep.config.search == "optuna" else plan_trials(sweep)
    validate(sweep, plans)
    if options.check:
        for plan in plans:
            print(plan.folder_name)
        if not plans:
            print(f"valid; {sweep.config.search} draws {sweep.config.budget.trials} settings, one after another")
        return 0
    return run_sweep(sweep, plans)


def run_sweep(sweep: Sweep, plans: Sequence[TrialPlan]) -> int:
    """Runs a validated sweep; 1 where a trial failed for good, 130 where someone interrupted, else 0."""
    from rlinf.report.page import plotting_installed
    from rlinf.report.write import write_report
    from rlinf.sweep.engine import run_trials
    from rlinf.sweep.export import write_tables
    from rlinf.sweep.records import open_sweep, read_sweep
    from rlinf.sweep.summary import summarise

    open_sweep(sweep)
    outcome = run_trials(sweep, plans)
    summary = summarise(read_sweep(sweep.folder))
    write_tables(summary, sweep.folder)
    print(summary.verdict)
    failed = [trial for trial in outcome.trials if trial.status == "failed"]
    for trial in failed:
        print(f"failed: {trial.folder.name}: {last_line(trial.error)}")
    if plotting_installed():
        print(f"Report: {write_report([sweep.folder])}")
    print(f"Tables: {sweep.folder}/settings.md; settings, trials and curves as .csv and .parquet")
    if outcome.interrupted:
        return INTERRUPTED
    return FAILED if failed else 0


def last_line(error: str | None) -> str:
    """
    >>> last_line("Traceback\\nValueError: no")
    'ValueError: no'
    """
    lines = (error or "").strip().splitlines()
    return lines[-1] if lines else "without a word"
