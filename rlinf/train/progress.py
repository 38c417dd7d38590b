"""The progress of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlinf.data.messages import Metrics


@dataclass
class Progress:
    """The progress of a run: all that the driver itself carries from step to step."""

    stage: str
    step: int = 0
    """Finished optimisation steps of the stage."""
    wall_s: float = 0.0
    initial: Metrics = field(default_factory=dict)
    evaluation: Metrics = field(default_factory=dict)
    evaluated: int = -1
    """The step that `evaluation` is of."""
    best: tuple[float, int] | None = None
    """(value of checkpoint.best_metric, step)."""
    unfinished: Metrics | None = None
    """Metrics so far of a step whose update is done, while its evaluation and its line in the log are not."""
    lr_scale: float = 1.0
    """What callbacks multiply the learning rate by."""
    untrained: Metrics = field(default_factory=dict)
    """The evaluation before the warm start; only of runs that are a warm start alone."""

    @property
    def before(self) -> Metrics:
        """The evaluation that those of now are compared with: before reinforcement learning, or before a warm start."""
        return self.initial if self.stage == "train" and self.step else self.untrained
