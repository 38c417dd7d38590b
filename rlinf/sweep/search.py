"""Optuna suggests settings, each after the results of those before."""

from __future__ import annotations

from typing import Any

from rlinf.sweep.load import Sweep
from rlinf.sweep.schema import SpaceEntry
from rlinf.sweep.settings import complete

# Not after the machine's cores: what is suggested depends on it.
_SETTINGS_AT_ONCE = 4


def searcher_of(sweep: Sweep) -> Any:
    """A searcher for Tune; None where all settings are known beforehand."""
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
