"""The alarm for samplers that answer with another policy than the one that is trained, by their log-probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlinf.base.errors import OtherPolicy
from rlinf.data.messages import Metrics

GAP = "train/sampler_logprob_gap"
AGE = f"{GAP}_age"
_DRIFT = 0.5
"""Nats that an update may change log-probabilities by, before tokens of older weights are suspicious too."""


@dataclass
class GapAlarm:
    """Watches `train/sampler_logprob_gap` from step to step.

    Tokens of the newest weights are compared with the learner's at the same weights, so that rounding alone
    separates them. If a batch has none, its newest tokens differ by what was learned since: those may warn, and
    end no run.
    """

    limit: float | None
    """In nats; None: nothing is watched."""
    steps: int | None
    """After this many steps in a row above it the run ends; None: it never does."""
    warn: Callable[[str], None]
    above: int = 0
    """Steps in a row so far."""

    @property
    def holds_checkpoints(self) -> bool:
        """Whether the state of now may be one that should not replace the last good checkpoint."""
        return self.above > 0 and self.steps is not None

    def add(self, step: int, metrics: Metrics) -> None:
        """Take the metrics of a finished step, and warn at the first one above the limit.

        :raises OtherPolicy: `rollout.gap_steps` steps in a row were above it.
        """
        gap, age = metrics.get(GAP), metrics.get(AGE, 0.0)
        if gap is None or self.limit is None:
            return
        if gap <= self.limit + _DRIFT * age:
            self.above = 0 if age == 0 else self.above
            return
        kind = "the same tokens" if age == 0 else f"tokens of weights {age:.0f} updates old"
        words = (
            f"sampler and learner differ by {gap:.3g} nats a token on {kind}, where {self.limit:g} is expected at most"
        )
        if age > 0:
            self.warn(f"WARNING: step {step}: {words}")
            return
        self.above += 1
        if self.above == self.steps:
            again = f" for {self.above} steps in a row" if self.above > 1 else ""
            raise OtherPolicy(
                f"step {step}: {words}, above rollout.gap_limit{again}. They do not run the same policy, so what is "
                f"learned is not what is sampled. {_ADVICE} rollout.gap_limit or rollout.gap_steps: null go on in "
                "spite of it."
            )
        if self.above == 1 or self.steps is not None:
            end = "" if self.steps is None else f" The run ends after {self.steps} such steps in a row."
            self.warn(f"WARNING: step {step}: {words}. {_ADVICE}{end}")


_ADVICE = (
    "See that samplers take every update (weights/proved is 1), and have the learner's dtype, chat template and "
    "temperature; algorithm.rollout_correction weighs small differences out."
)
