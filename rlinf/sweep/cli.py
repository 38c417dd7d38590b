"""`rlinf sweep FILE.yaml [key=value ...]`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from rlinf.base.arguments import Parser
from rlinf.base.durable import write_atomically
from rlinf.base.redaction import redacted
from rlinf.base.signals import as_interrupts
from rlinf.config import ConfigErrors
from rlinf.config.recipes import located, packaged, sweep_recipes
from rlinf.sweep.load import Sweep, read_sweep_file
from rlinf.sweep.settings import TrialPlan, plan_trials, repeated_draws
from rlinf.sweep.summary import SweepSummary
from rlinf.sweep.validate import validate

# `best.yaml`: the best setting of a sweep as a file that `rlinf train` takes.
NAME = "best.yaml"
_SECRET = "cluster.env"
"""Values of this section may be secrets, and are left out."""


def write_best(sweep: Sweep, summary: SweepSummary) -> Path | None:
    """Write the file into the sweep's folder; return its path, or None if no trial has finished.

    It extends the sweep's base by the keys of `set`, the steps of the budget and the best setting. The seed stays that
    of the base.
    """
    best = next((one for one in summary.settings if one.final is not None), None)
    if best is None:
        return None
    steps = {} if sweep.config.budget.steps is None else {"run.max_steps": sweep.config.budget.steps}
    keys = {**sweep.config.set, **steps, **sweep.written(best.setting), "run.name": f"{sweep.name}_best"}
    is_recipe = packaged(sweep.config.base) == sweep.base
    base = sweep.config.base if is_recipe else os.path.relpath(sweep.base.resolve(), sweep.folder.resolve())
    tree: dict[str, Any] = {"extends": base}
    for key, value in keys.items():
        if not f"{key}.".startswith(f"{_SECRET}."):
            _put(tree, key, value)
    path = sweep.folder / NAME
    assert best.final is not None
    score = f"{summary.sweep.metric} {best.final.mean:.4g} over {best.final.count} trial"
    plural = "" if best.final.count == 1 else "s"
    write_atomically(
        path,
        (f"# The best setting of the sweep {summary.sweep.name}: {best.label}\n# {score}{plural}\n")
        + yaml.safe_dump(tree, sort_keys=False, allow_unicode=True),
    )
    return path


def best_run(summary: SweepSummary) -> Path | None:
    """Return the run directory of the best setting's best trial; None if no trial has finished."""
    best = next((one for one in summary.settings if one.final is not None), None)
    if best is None:
        return None
    sign = 1 if summary.sweep.mode == "max" else -1
    return max(best.counted, key=lambda trial: sign * (trial.final or 0.0)).record.run_dir


def _put(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key in nested mappings."""
    *sections, name = key.split(".")
    for section in sections:
        inner = tree.get(section)
        tree[section] = dict(inner) if isinstance(inner, Mapping) else {}
        tree = tree[section]
    tree[name] = value


FAILED = 1
_MAKE_TRIALS = ("", "base", "set", "space", "search", "budget")


def main(arguments: Sequence[str]) -> int:
    """Validate every trial, run what is not finished, aggregate, write the report."""
    parser = Parser(prog="rlinf sweep", description="Many runs from one file; the same command resumes.")
    parser.resumes = (
        "the same command resumes a sweep, with the trials that are not at their end; dir=DIR names another"
    )
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
    """Return a sweep and its trials; raise ConfigErrors with the mistakes of the file and those of all its trials."""
    sweep, problems = read_sweep_file(path, overrides)
    plans: list[TrialPlan] = []
    # Without these, trials cannot be made.
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
    """Run a validated sweep; return 1 if a trial failed for good, 130, 143 or 129 if it was interrupted, else 0."""
    from rlinf.report.write import write_report
    from rlinf.sweep.confirmation import confirmation_of, confirmation_sentence
    from rlinf.sweep.engine import run_trials
    from rlinf.sweep.export import write_tables
    from rlinf.sweep.records import mark_cut_short, open_sweep, read_sweep
    from rlinf.sweep.summary import summarise

    open_sweep(sweep)
    if repeated_draws(sweep.config):
        print(repeated_draws(sweep.config))
    folders = [sweep.folder]
    outlook = "the same command goes on with the trials that are not at their end"
    with as_interrupts(outlook, lambda: mark_cut_short(folders)) as exit_code:
        outcome = run_trials(sweep, plans)
        summary = summarise(read_sweep(sweep.folder))
        confirmation = None if outcome.interrupted else confirmation_of(sweep, summary)
        if confirmation is not None:
            open_sweep(confirmation[0])
            folders.append(confirmation[0].folder)
            outcome = replace(outcome, interrupted=run_trials(*confirmation).interrupted)
    write_tables(summary, sweep.folder)
    print(summary.verdict)
    if sentence := confirmation_sentence(sweep.folder, summary):
        print(sentence)
    failed = [trial for trial in outcome.trials if trial.status == "failed"]
    for trial in failed:
        print(redacted(f"failed: {trial.folder.name}: {last_line(trial.error)}"))
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
