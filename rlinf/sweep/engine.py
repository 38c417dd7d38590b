"""From a sweep to a Ray Tune experiment, and what happens after a kill."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rlinf.base.errors import UserError
from rlinf.sweep.live import LiveView
from rlinf.sweep.load import Sweep
from rlinf.sweep.records import TrialRecord, mark_cut_short, read_sweep
from rlinf.sweep.schema import ResourcesConfig, SpaceEntry
from rlinf.sweep.sequential import FIRST
from rlinf.sweep.settings import TrialPlan, complete, plan_of
from rlinf.sweep.shared_base import fit_on_one_base
from rlinf.sweep.summary import judge_sweep

# Optuna suggests settings, each after the results of those before.
# Not after the machine's cores: what is suggested depends on it.
_SETTINGS_AT_ONCE = 4


def searcher_of(sweep: Sweep) -> Any:
    """Build a searcher for Tune; None if all settings are fixed beforehand."""
    if sweep.config.search != "optuna":
        return None
    import optuna
    from ray.tune.search.optuna import OptunaSearch

    from rlinf.sweep.in_order import InOrder, Suggestions

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    config, seeds = sweep.config, len(sweep.config.seeds)
    search = OptunaSearch(space=_Suggest(sweep), metric="objective", mode=config.mode, seed=config.seed)
    in_order = InOrder(search, seeds=seeds, parallel=config.resources.max_parallel or _SETTINGS_AT_ONCE * seeds)
    return Suggestions(in_order, (config.budget.trials or 1) * seeds)


class _Suggest:
    """The space in the form that Optuna draws from, one key after another, so that conditions hold."""

    def __init__(self, sweep: Sweep) -> None:
        self.space = sweep.config.space
        self.count = 0

    def __call__(self, trial: Any) -> dict[str, Any]:
        def draw(names: str, entry: SpaceEntry) -> Any:
            if entry.choice is not None:
                # By index: values may be lists, which Optuna does not store.
                return entry.choice[trial.suggest_categorical(names, list(range(len(entry.choice))))]
            if entry.integer is not None:
                return trial.suggest_int(names, *entry.integer)
            bounds = entry.uniform or entry.loguniform
            assert bounds is not None
            return trial.suggest_float(names, *bounds, log=entry.loguniform is not None)

        self.count += 1
        return {"number": self.count - 1, "setting": complete(self.space, {}, draw)}


# Tune is reported these by environment only: no output of its own, and no long wait for a trial that is stopped.
_QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_FORCE_TRIAL_CLEANUP_S": "10",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
}

# Of each trial of a population: enough that one is still there when a trial that waits for a core wants it.
_CHECKPOINTS = 4
_START_TIMEOUT_S = 180.0
_DONE = ("finished", "stopped")


@dataclass(frozen=True)
class Outcome:
    """All trials so far, and whether the sweep was interrupted."""

    trials: list[TrialRecord]
    interrupted: bool


def run_trials(sweep: Sweep, plans: Sequence[TrialPlan]) -> Outcome:
    """Run what is not finished yet, until nothing is left, time is up or a user interrupts."""
    known = {trial.folder.name: trial for trial in read_sweep(sweep.folder).trials}
    done = {name for name, trial in known.items() if trial.status in _DONE}
    waiting = [plan for plan in plans if plan.folder_name not in done]
    if sweep.config.schedule.name == "none":
        # All settings with one seed before any with the next: a sweep that is cut can be compared.
        waiting.sort(key=lambda plan: sweep.config.seeds.index(plan.seed))
    total = len(plans) or (sweep.config.budget.trials or 1) * len(sweep.config.seeds)
    with LiveView(sweep, total=total, done_before=done, begun_before=known.keys() - done) as view:
        if plans and not waiting:
            view.print_line("every trial is at its end already")
        elif sweep.config.stop == "sequential":
            total = _fit_in_rounds(sweep, plans, view)
        else:
            _fit(sweep, waiting, view)
        mark_cut_short([sweep.folder], "out of time" if view.out_of_time else "interrupted")
        trials = list(read_sweep(sweep.folder).trials)
        left = total - sum(trial.status in (*_DONE, "failed") for trial in trials)
        if left:
            why = "Out of time" if view.out_of_time else "Interrupted"
            view.print_line(f"{why}: {left} of {total} trials have not finished. The same command continues.")
    return Outcome(trials, interrupted=left > 0 and not view.out_of_time)


def _fit_in_rounds(sweep: Sweep, plans: Sequence[TrialPlan], view: LiveView) -> int:
    """Run the trials seed by seed, until they are decided or hopeless; return how many trials that takes."""
    seeds = sweep.config.seeds
    for count in range(FIRST, len(seeds) + 1):
        due = [plan for plan in plans if plan.seed in seeds[:count]]
        done = {trial.folder.name for trial in read_sweep(sweep.folder).trials if trial.status in _DONE}
        waiting = [plan for plan in due if plan.folder_name not in done]
        if waiting:
            _fit(sweep, waiting, view)
        record = read_sweep(sweep.folder)
        if any(trial.status == "running" for trial in record.trials):
            break  # it was interrupted, or is out of time
        judgement = judge_sweep(record)
        view.print_line(judgement.sentence(len(seeds)))
        if judgement.state in ("decided", "hopeless"):
            return len(due)
    return len(plans)


def _fit(sweep: Sweep, waiting: list[TrialPlan], view: LiveView) -> None:
    if sweep.config.share_base:
        fit_on_one_base(sweep, waiting, view)
        return
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    from rlinf.cluster.ray_settings import apply_settings

    apply_settings()
    from rlinf.cluster.ray_session import RaySession

    # A failure is reported by the live view, with the run's own traceback instead of that of the actor around it.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    # A trial's process is new after each copy, so that an actor which is used again would save little.
    warnings.filterwarnings("ignore", message="Consider boosting PBT performance")
    session = RaySession(
        sweep.config.address,
        start_timeout_s=_START_TIMEOUT_S,
        options={"log_to_driver": False, "logging_level": logging.ERROR},
        local_options={"include_dashboard": False},
    )
    try:
        if sweep.config.address is None:  # a cluster may grow, this machine does not
            import ray

            require_resources(sweep.config.resources, ray.cluster_resources())
        _run_tune(sweep, waiting, view)
    finally:
        session.close()


def require_resources(resources: ResourcesConfig, there: Mapping[str, float]) -> None:
    """Raise UserError if a trial needs more than there is, by Ray's names: it would wait without an end."""
    for key, name, needed in (("cpus", "CPU", resources.cpus), ("gpus", "GPU", resources.gpus)):
        if needed > there.get(name, 0):
            raise UserError(
                f"resources.{key}: {needed:g} is more than this machine's {there.get(name, 0):g}, and no trial would "
                "ever start: use fewer"
            )


def _run_tune(sweep: Sweep, waiting: list[TrialPlan], view: LiveView) -> None:
    from ray import tune

    from rlinf.sweep.events import Events
    from rlinf.sweep.schedulers import scheduler_of
    from rlinf.sweep.trainable import Trial

    config = sweep.config
    storage = sweep.folder / "tune"
    listed = config.search != "optuna"
    space = {"trial": tune.grid_search([{**asdict(plan), "folder": plan.folder_name} for plan in waiting])}
    # Without a scheduler or a searcher there is no state to restore: the run directories hold everything.
    stateful = config.schedule.name != "none" or not listed
    tune.run(
        tune.with_resources(
            tune.with_parameters(Trial, sweep=sweep), {"cpu": config.resources.cpus, "gpu": config.resources.gpus}
        ),
        name=storage.name,
        storage_path=str(storage.parent),
        metric="objective",
        mode=config.mode,
        config=space if listed else None,
        num_samples=1 if listed else (config.budget.trials or 1) * len(config.seeds),
        scheduler=scheduler_of(sweep),
        search_alg=searcher_of(sweep),
        max_concurrent_trials=config.resources.max_parallel if listed else None,
        max_failures=config.retries,
        checkpoint_config=tune.CheckpointConfig(num_to_keep=_CHECKPOINTS),
        callbacks=[Events(view)],
        trial_dirname_creator=lambda trial: plan_of(trial.config, config.seeds)[1],
        resume="AUTO+ERRORED" if stateful else None,
        raise_on_failed_trial=False,
        verbose=0,
    )
