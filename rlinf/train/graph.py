"""The processes of a run behind plain calls: the same for language models and for simulators."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rlinf.algorithms.prepare import Preparation
from rlinf.base import timeline
from rlinf.data.batch import Batch
from rlinf.data.messages import Metrics
from rlinf.interfaces import ContinuousGeneration, Rollout
from rlinf.train.evaluation.text import Evaluation
from rlinf.train.reward_model import LearnedReward
from rlinf.train.workers.learner_pool import LearnerPool
from rlinf.train.workers.text_env_pool import TextEnvPool

WarmStartPreparation = Callable[[Batch], tuple[Batch, Metrics]]
"""A supervised batch as the learner is to have it, and what is logged of it instead of the update's figures."""


def imitated(batch: Batch) -> tuple[Batch, Metrics]:
    """Return the batch as it is: its responses are imitated."""
    return batch, {}


def nothing() -> None:
    """Do nothing, for graphs whose samplers have no memory to free."""


@dataclass(frozen=True)
class Graph:
    """The processes of the loop. Learner and samplers take turns on a device that they share, in contexts."""

    rollout: Rollout
    learner: LearnerPool
    preparation: Preparation
    """Makes of a rollout what the learner trains on."""
    send_weights: Callable[[int], Metrics]
    """The learner's weights to the samplers, under this version."""
    evaluate: Callable[[], Evaluation] | None
    film: Callable[[int], Evaluation] | None = None
    """The same evaluation, with a video of the step that is given; None where nothing can be filmed."""
    reward_models: Sequence[LearnedReward] = ()
    """What scores batches instead of the environment, or in addition to it."""
    warm_start_batch: Callable[[int], Batch] | None = None
    """The supervised batch of a warm-start step."""
    warm_start_preparation: WarmStartPreparation = imitated
    continuous: ContinuousGeneration | None = None
    """The rollout, where samplers go on while the learner trains (`rollout.staleness`)."""
    overlaps: bool = False
    """The next batch is collected while the learner trains: neither ever leaves its device."""
    sleep: Callable[[], None] = nothing
    """Samplers give device memory back while the learner works ..."""
    wake: Callable[[], None] = nothing
    """... until they are to take new weights."""
    rendered: Callable[[int, str], str] | None = None
    """The prompt of a task, by number and question, as the policy reads it; None for simulators."""
    write_policy_extras: Callable[[str], object] | None = None
    """Writes what belongs into the folder of an exported policy: a tokenizer, or the class of a policy of one's own."""
    counting: TextEnvPool | None = None
    """The environments, if their counts of failures are part of a checkpoint; those of simulators are the rollout's."""
    restarts: Callable[[], Mapping[str, float]] = dict
    """How often workers were restarted, by kind, and what else pools of workers count."""
    gap_limit: float | None = None
    """Above this distance of their log-probabilities, in nats, sampler and learner do not run the same policy."""
    unproved: Callable[[], str | None] = lambda: None
    """Why it is not shown that samplers hold the weights that they were sent; None: it is shown at every update."""
    notes: Mapping[str, int | str] = field(default_factory=dict)
    """What is printed once, at the start, and kept in `summary.json` (rows skipped, what `auto` chose)."""

    @contextmanager
    def generating(self) -> Iterator[None]:
        """Samplers have the device. The learner leaves it first, in case an evaluation or a checkpoint woke it."""
        if not self.overlaps:
            self.learner.sleep()
        yield

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Give the learner the device. Samplers leave it first, and come back with :meth:`hand_over`."""
        if not self.overlaps:
            self.sleep()
        yield

    def hand_over(self, version: int) -> Metrics:
        """End learning: the samplers come back with the learner's weights as ``version``; return what that took."""
        began = time.perf_counter()
        # Where they share a device: the optimiser leaves it before samplers come back, the weights once they are sent.
        slept = self.learner.sleep(keep_weights=True)
        self.wake()
        with timeline.span("weights to samplers"):
            numbers = self.send_weights(version)
        for name, value in self.learner.sleep().items():
            numbers[name] = value + slept[name]
        metrics = {f"weights/{name}": value for name, value in numbers.items()}
        return {**metrics, "time/weights_s": time.perf_counter() - began}
