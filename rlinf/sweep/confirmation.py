"""The winner of a sweep again, on seeds that did not choose it: the best of many settings was also the luckiest.

`confirm: N` runs the best setting and the next one with N fresh seeds in `confirmation/`, a sweep directory of its own.
Evaluation tasks that an environment draws by a seed are fresh too: those of the sweep chose the winner.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

from rlinf.config import load
from rlinf.config.derived import is_text
from rlinf.rollouts.text.envs.make_env import draws_tasks_by_seed
from rlinf.sweep.load import Sweep, assignments
from rlinf.sweep.records import read_sweep
from rlinf.sweep.schema import BudgetConfig
from rlinf.sweep.settings import Setting, TrialPlan
from rlinf.sweep.statistics import welch
from rlinf.sweep.summary import ALPHA, SweepSummary, summarise

FOLDER = "confirmation"
_TASK_SEED = "evaluation.env_kwargs.seed"
_FURTHER = 1_000_003
"""From the seed of the sweep's tasks to the confirmation's: a generator may add a task's number to its seed."""


def confirmation_of(sweep: Sweep, summary: SweepSummary) -> tuple[Sweep, list[TrialPlan]] | None:
    """Return the sweep that runs the two best settings again, and its trials; None if there is nothing to confirm."""
    ranked = [one for one in summary.settings if one.final is not None]
    if not sweep.config.confirm or not ranked:
        return None
    config = sweep.config
    first = max(config.seeds) + 1
    seeds = list(range(first, first + config.confirm))
    again = replace(
        config,
        name=sweep.name,
        dir=str(sweep.folder / FOLDER),
        seeds=seeds,
        confirm=0,
        stop="never",
        scheduler="none",
        search="random",
        budget=BudgetConfig(steps=config.budget.steps, wall_time_s=config.budget.wall_time_s),
        set=config.set | _other_tasks(sweep, dict(ranked[0].setting)),
    )
    settings: list[Setting] = [dict(one.setting) for one in ranked[:2]]
    plans = [TrialPlan(number, *pair) for number, pair in enumerate(itertools.product(settings, seeds))]
    return replace(sweep, config=again), plans


def _other_tasks(sweep: Sweep, best: Setting) -> dict[str, int]:
    """Return the setting that gives evaluations other tasks; none if they are fixed, or the seed is of the space.

    ``best``: the base may lack keys that only the space has.
    """
    base = load(sweep.base, assignments(sweep.config.set | sweep.written(best)))
    kwargs = base.env.kwargs | (base.evaluation.env_kwargs or {})
    fixed = not is_text(base) or kwargs.get("split") != "eval" or base.env.id is None
    if fixed or _TASK_SEED in sweep.keys or not draws_tasks_by_seed(base.env.id):
        return {}
    seed = kwargs.get("seed")
    return {_TASK_SEED: _FURTHER + (seed if isinstance(seed, int) else 0)}


def confirmation_sentence(folder: Path, summary: SweepSummary) -> str:
    """Report whether the winner of the sweep in ``folder`` won on fresh seeds too; "" without a result."""
    if not (folder / FOLDER / "sweep.json").exists():
        return ""
    ranked = [one for one in summary.settings if one.final is not None]
    confirmed = read_sweep(folder / FOLDER)
    settings = {one.label: one for one in summarise(confirmed).settings if one.final is not None}
    if not ranked or ranked[0].label not in settings:
        return ""
    best, again = ranked[0], settings[ranked[0].label]
    assert best.final is not None
    assert again.final is not None
    count = again.final.count
    seeds = "1 fresh seed" if count == 1 else f"{count} fresh seeds"
    if confirmed.definition["set"].get(_TASK_SEED) != summary.sweep.definition["set"].get(_TASK_SEED):
        seeds += " and other evaluation tasks"
    text = f"Again on {seeds}: {best.label} has {again.final.mean:.4g}, {best.final.mean:.4g} in the sweep"
    other = settings.get(ranked[1].label) if len(ranked) > 1 else None
    if other is None or other.final is None:
        return f"{text}."
    sign = 1 if summary.sweep.mode == "max" else -1
    text += f", and the next, {other.label}, {other.final.mean:.4g}"
    if sign * (again.final.mean - other.final.mean) <= 0:
        return f"{text}: the winner does not win again."
    p_value = welch(again.finals, other.finals)
    if p_value is None:
        return f"{text}: ahead again, and one seed does not distinguish that from noise."
    known = "by more than noise" if p_value <= ALPHA else "and the difference may be noise"
    return f"{text}: ahead again, {known} (p = {p_value:.2g})."
