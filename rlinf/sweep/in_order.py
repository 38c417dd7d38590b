"""Suggestions that do not depend on which trial happens to be faster, and that outlive the driver."""

from __future__ import annotations

import math
from typing import Any

from ray.tune.search import Searcher, SearchGenerator

from rlinf.sweep.settings import SEED_INDEX


class InOrder(Searcher):
    """Trial k has seed ``k % seeds`` of setting ``k // seeds``; a setting's answer is its mean over the seeds.

    A searcher's next suggestion depends on the results that it has received before. So they are reported in the
    order of the settings, and setting s is requested when exactly the first ``s - ahead + 1`` results are in. One
    that comes early waits, and the same sweep file gives the same settings on any machine.
    """

    def __init__(self, searcher: Searcher, *, seeds: int, parallel: int) -> None:
        """At most ``parallel`` trials at a time."""
        super().__init__(metric=searcher.metric, mode=searcher.mode)
        self.searcher, self.seeds, self.parallel = searcher, seeds, parallel
        self.trials: list[str] = []
        self.results: dict[str, float] = {}
        """NaN: the trial failed."""
        self.reported = 0
        self.setting: dict[str, Any] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """Return a trial's configuration; None if it has to wait."""
        if len(self.trials) - len(self.results) >= self.parallel:
            return None
        index = len(self.trials) % self.seeds
        if index == 0:
            ahead = -(-self.parallel // self.seeds)
            while self.reported < len(self.trials) // self.seeds - ahead + 1:
                if not self._tell():
                    return None
            suggested = self.searcher.suggest(trial_id)
            if suggested is None:
                return None
            self.setting = suggested
        self.trials.append(trial_id)
        return {**self.setting, SEED_INDEX: index}

    def _tell(self) -> bool:
        """Report the next finished setting; return False while one of its seeds runs."""
        trials = self.trials[self.reported * self.seeds : (self.reported + 1) * self.seeds]
        if not all(trial in self.results for trial in trials):
            return False
        known = [value for trial in trials if math.isfinite(value := self.results[trial])]
        answer = {self.metric: sum(known) / len(known)} if known else None
        self.searcher.on_trial_complete(trials[0], result=answer, error=answer is None)
        self.reported += 1
        return True

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        value = (result or {}).get(self.metric)
        self.results[trial_id] = math.nan if error or value is None else float(value)

    def get_state(self) -> dict[str, Any]:
        """Return the state that Tune saves; the searcher saves itself, and a sweep's width may change on resuming."""
        return {"trials": self.trials, "results": self.results, "told": self.reported, "setting": self.setting}

    def set_state(self, state: dict[str, Any]) -> None:
        self.trials, self.results, self.setting = state["trials"], state["results"], state["setting"]
        self.reported = state["told"]

    def save(self, checkpoint_path: str) -> None:
        self.searcher.save(checkpoint_path)

    def restore(self, checkpoint_path: str) -> None:
        self.searcher.restore(checkpoint_path)


class Suggestions(SearchGenerator):
    """Tune's source of trials; a budget that grew holds for a sweep that goes on."""

    def __init__(self, searcher: Searcher, trials: int) -> None:
        super().__init__(searcher)
        self._trials = trials

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state({**state, "total_samples": self._trials, "finished": False})
