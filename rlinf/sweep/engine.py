"""From a sweep to a Ray Tune experiment: schedulers, searchers, and what happens after a kill."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rlinf.sweep.live import LiveView
from rlinf.sweep.load import Sweep
from rlinf.sweep.records import TrialRecord, read_sweep
from rlinf.sweep.schema import SpaceEntry
from rlinf.sweep.settings import TrialPlan, complete


def run_trials(sweep: Sweep, plans: Sequence[TrialPlan]) -> list[TrialRecord]:
    """Runs what is not finished yet; returns all trials."""
    finished = {trial.folder.name for trial in read_sweep(sweep.folder).trials if trial.status == "finished"}
    waiting = [plan for plan in plans if plan.folder_name not in finished]
    with LiveView(sweep, total=_total(sweep, plans), finished=len(finished)) as view:
        if plans and not waiting:
            view.say("every trial is finished already")
        else:
            _fit(sweep, waiting)
    return list(read_sweep(sweep.folder).trials)


def _fit(sweep: Sweep, waiting: list[TrialPlan]) -> None:
    # Tune tells these by environment only: no output of its own, and no long wait for a trial that is stopped.
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    os.environ.setdefault("TUNE_FORCE_TRIAL_CLEANUP_S", "10")
    os.environ.setdefault("TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S", "0")
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    import ray
    from ray import tune

    from rlinf.sweep.trainable import Trial

    # A failure is told by the live view, with the run's own traceback instead of that of the actor around it.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)

    started = not ray.is_initialized()
    if started:
        ray.init(
            address=sweep.config.address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
        )
    try:
        wanted = sweep.config.resources
        trainable = tune.with_resources(
            tune.with_parameters(Trial, sweep=sweep), {"cpu": wanted.cpus, "gpu": wanted.gpus}
        )
        _tuner(sweep, waiting, trainable).fit()
    finally:
        if started:
            ray.shutdown()


def _tuner(sweep: Sweep, waiting: list[TrialPlan], trainable: Any) -> Any:
    from ray import tune

    from rlinf.sweep.events import Events

    storage = sweep.folder / "tune"
    # Without a scheduler or a searcher there is no state to restore: the run directories say everything.
    stateful = sweep.config.schedule.name != "none" or sweep.config.search == "optuna"
    if stateful and tune.Tuner.can_restore(str(storage)):
        return tune.Tuner.restore(str(storage), trainable=trainable, resume_unfinished=True, restart_errored=True)
    config = sweep.config
    space = None
    if config.search != "optuna":
        listed = [{**asdict(plan), "folder": plan.folder_name} for plan in waiting]
        space = {"trial": tune.grid_search(listed)}
    return tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="objective",
            mode=config.mode,
            scheduler=_scheduler(sweep),
            search_alg=_searcher(sweep),
            num_samples=1 if space else (config.budget.trials or 1) * len(config.seeds),
            max_concurrent_trials=config.resources.max_parallel if space else None,
            time_budget_s=config.budget.wall_time_s,
        ),
        run_config=tune.RunConfig(
            name=storage.name,
            storage_path=str(storage.parent),
            failure_config=tune.FailureConfig(max_failures=config.retries),
            callbacks=[Events()],
            verbose=0,
        ),
    )


def _scheduler(sweep: Sweep) -> Any:
    from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, PopulationBasedTraining

    schedule = sweep.config.schedule
    if schedule.name == "asha":
        return ASHAScheduler(
            time_attr="step",
            grace_period=schedule.grace_steps,
            reduction_factor=schedule.reduction,
            # Above the last step: a trial that gets there ends by itself, and is finished instead of stopped.
            max_t=(sweep.config.budget.steps or 100_000) + 1,
        )
    if schedule.name == "pbt":
        mutations = {key: _domain(entry) for key, entry in sweep.config.space.items() if _drawn(entry)}
        return PopulationBasedTraining(
            time_attr="step",
            perturbation_interval=schedule.perturb_every,
            quantile_fraction=schedule.quantile,
            hyperparam_mutations={"trial": {"setting": mutations}},
            require_attrs=False,
        )
    return FIFOScheduler()


def _searcher(sweep: Sweep) -> Any:
    if sweep.config.search != "optuna":
        return None
    import optuna
    from ray.tune.search import ConcurrencyLimiter, Repeater
    from ray.tune.search.optuna import OptunaSearch

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    seeds = sweep.config.seeds
    search = OptunaSearch(space=_Suggest(sweep), metric="objective", mode=sweep.config.mode, seed=sweep.config.seed)
    # All seeds of a setting are one answer to the searcher, their mean.
    repeated = Repeater(search, repeat=len(seeds)) if len(seeds) > 1 else search
    return ConcurrencyLimiter(repeated, max_concurrent=sweep.config.resources.max_parallel or 4 * len(seeds))


class _Suggest:
    """The space as Optuna is asked for it, one key after another, so that conditions hold."""

    def __init__(self, sweep: Sweep) -> None:
        self.space = sweep.config.space
        self.count = 0

    def __call__(self, trial: Any) -> dict[str, Any]:
        def draw(names: str, entry: SpaceEntry) -> Any:
            if entry.choice is not None:
                # By place: values may be lists, which Optuna does not store.
                return entry.choice[trial.suggest_categorical(names, list(range(len(entry.choice))))]
            if entry.integer is not None:
                return trial.suggest_int(names, *entry.integer)
            bounds = entry.uniform or entry.loguniform
            assert bounds is not None
            return trial.suggest_float(names, *bounds, log=entry.loguniform is not None)

        self.count += 1
        return {"number": self.count - 1, "setting": complete(self.space, {}, draw)}


def _domain(entry: SpaceEntry) -> Any:
    from ray import tune

    if entry.choice is not None:
        return tune.choice(entry.choice)
    if entry.integer is not None:
        return tune.randint(entry.integer[0], entry.integer[1] + 1)
    return tune.uniform(*entry.uniform) if entry.uniform is not None else tune.loguniform(*(entry.loguniform or ()))


def _drawn(entry: SpaceEntry) -> bool:
    return entry.grid is None and entry.like is None


def _total(sweep: Sweep, plans: Sequence[TrialPlan]) -> int:
    return len(plans) or (sweep.config.budget.trials or 1) * len(sweep.config.seeds)
