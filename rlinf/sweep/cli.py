"""`rlinf sweep FILE.yaml [key=value ...]`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rlinf.base.arguments import Parser
from rlinf.base.redaction import redacted
from rlinf.base.signals import as_interrupts
from rlinf.config import ConfigErrors
from rlinf.config.recipes import located, sweep_recipes
from rlinf.sweep.load import Sweep, read_sweep_file
from rlinf.sweep.settings import TrialPlan, plan_trials, repeated_draws
from rlinf.sweep.validate import validate

FAILED = 1
_MAKE_TRIALS = ("", "base", "set", "space", "search", "budget")


def main(arguments: Sequence[str]) -> int:
    """Validates every trial, runs what is not finished, aggregates, writes the report."""
    parser = Parser(prog="rlinf sweep", description="Many runs from one file; the same command resumes.")
    parser.add_argument("file", type=Path, metavar="FILE", help="a sweep file, or the name of a packaged one")
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="replace keys of the sweep file")
    parser.add_argument("--check", action="store_true", help="validate, list the trials, start nothing")
    options = parser.parse_intermixed_args(arguments)
    sweep, plans = checked_sweep(located(options.file, sweep_recipes()), options.overrides)
    if options.check:
        for plan in plans:
            print(plan.folder_name)
        if repeated_draws(sweep.config):
            print(repeated_draws(sweep.config))
        if not plans:
            print(f"valid; {sweep.config.search} draws {sweep.config.budget.trials} settings, one after another")
        return 0
    return run_sweep(sweep, plans)


def checked_sweep(path: Path, overrides: Sequence[str]) -> tuple[Sweep, list[TrialPlan]]:
    """A sweep and its trials; raises ConfigErrors with the mistakes of the file and those of all its trials."""
    sweep, problems = read_sweep_file(path, overrides)
    plans: list[TrialPlan] = []
    # Without these nothing can be said about trials.
    if sweep.config.seeds and not any(problem.key.partition(".")[0] in _MAKE_TRIALS for problem in problems):
        try:
            plans = [] if sweep.config.search == "optuna" else plan_trials(sweep)
            validate(sweep, plans)
        except ConfigErrors as errors:
            problems += errors.problems
    if problems:
        raise ConfigErrors(problems)
    return sweep, plans


def run_sweep(sweep: Sweep, plans: Sequence[TrialPlan]) -> int:
    """Runs a validated sweep; 1 where a trial failed for good, 130, 143 or 129 where someone interrupted, else 0."""
    from rlinf.report.page import plotting_installed
    from rlinf.report.write import write_report
    from rlinf.sweep.best import best_run, write_best
    from rlinf.sweep.engine import run_trials
    from rlinf.sweep.export import write_tables
    from rlinf.sweep.records import open_sweep, read_sweep
    from rlinf.sweep.summary import summarise

    open_sweep(sweep)
    if repeated_draws(sweep.config):
        print(repeated_draws(sweep.config))
    with as_interrupts("the same command goes on with the trials that are not at their end") as exit_code:
        outcome = run_trials(sweep, plans)
    summary = summarise(read_sweep(sweep.folder))
    write_tables(summary, sweep.folder)
    print(summary.verdict)
    failed = [trial for trial in outcome.trials if trial.status == "failed"]
    for trial in failed:
        print(redacted(f"failed: {trial.folder.name}: {last_line(trial.error)}"))
    if plotting_installed():
        print(f"Report: {write_report([sweep.folder])}")
    print(f"Tables: {sweep.folder}/settings.md; settings, trials and curves as .csv and .parquet")
    best = write_best(sweep, summary)
    if best is not None:
        print(f"Best setting: rlinf train {shlex.quote(str(best))}")
        again = f"rlinf train {shlex.quote(str(best))} run.init_from={shlex.quote(str(best_run(summary)))}"
        print(f"Its best policy, trained further: {again}")
    if outcome.interrupted:
        return exit_code()
    return FAILED if failed else 0


def last_line(error: str | None) -> str:
    """
    >>> last_line("Traceback\\nValueError: no")
    'ValueError: no'
    """
    lines = (error or "").strip().splitlines()
    return lines[-1] if lines else "without a word"
