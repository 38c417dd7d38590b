"""A rank of the learner as the driver calls it."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from torch import Tensor

from rlinf.batch_share import BatchShare, CommonFacts
from rlinf.cluster.weights.sender import WeightSender
from rlinf.interfaces import Learner
from rlinf.learners.partition import DataPlace
from rlinf.learners.scorer import Scorer
from rlinf.types import Batch, Metrics, PolicyOutput, WeightUpdate


class LearnerWorker(WeightSender):
    """A rank of any learner. A call wakes a learner that sleeps; reading its weights leaves the rest of it asleep."""

    def __init__(
        self, learner: Learner, *, rank: int, bucket_bytes: int | None = None, teacher: Scorer | None = None
    ) -> None:
        """``bucket_bytes``: the size of a part of the weights; None sends all of them at once. ``teacher``: this rank's
        copy, which stays on the device while the learner sleeps."""
        super().__init__(rank)
        self._asleep = False
        self._learner = learner
        self._bucket_bytes = bucket_bytes
        self._teacher = teacher

    def _awake(self) -> Learner:
        if self._asleep:
            self._learner.wake()
            self._asleep = False
        return self._learner

    def start(self, stage: str) -> None:
        """Begins a stage, "sft" or "train"."""
        self._awake().start(stage)

    def data_place(self) -> DataPlace:
        """Which share of the rows this rank works on, and of how many."""
        return DataPlace(*self._learner.data_place)

    def evaluate(
        self,
        batch: Batch | Tensor,
        common: CommonFacts | None = None,
        rows: Tensor | None = None,
        *,
        reference: bool = False,
    ) -> tuple[Tensor, PolicyOutput]:
        """(rows [B'], log-probabilities and values [B', T]) of this rank's share.

        ``batch`` is the whole batch, or the records of those rows of it that ``rows`` names.
        """
        return self._awake().evaluate(_held(batch, common, rows), reference=reference)

    def teach(self, batch: Batch) -> tuple[Tensor, PolicyOutput]:
        """(rows [B'], the teacher's log-probabilities [B', T]) of this rank's share."""
        if self._teacher is None:
            raise RuntimeError("this run has no teacher in the learner's ranks")
        rows, logprobs = self._teacher.score(batch)
        return rows, PolicyOutput(logprobs)

    def update(
        self, batch: Batch | Tensor, common: CommonFacts | None = None, rows: Tensor | None = None, *, step: int
    ) -> Metrics:
        """All optimiser steps of training iteration ``step``; ``batch`` as in :meth:`evaluate`."""
        return self._awake().update(_held(batch, common, rows), step=step)

    def scale_lr(self, factor: float) -> None:
        """Multiplies the learning rates that the schedule gives, from the next update on."""
        self._learner.scale_lr(factor)

    def refresh_reference(self, *, keep: float = 0.0) -> None:
        """Moves the reference policy to the current one, but for the share ``keep``."""
        self._awake().refresh_reference(keep=keep)

    def save(self, folder: Path) -> None:
        """Writes what :meth:`load` continues from."""
        self._awake().save(folder)

    def load(self, folder: Path) -> None:
        """Continues where :meth:`save` stopped."""
        self._awake().load(folder)

    def init_from(self, folder: Path, *, optimizer: bool) -> None:
        """Begins the stage again with the weights of another run's checkpoint."""
        self._awake().init_from(folder, optimizer=optimizer)

    def export(self, folder: Path) -> None:
        """Writes a folder that the policy's own library loads."""
        self._awake().export(folder)

    def sleep(self, *, keep_weights: bool) -> Metrics:
        """Moves to the host what ``learner.offload`` names."""
        self._asleep = True
        return self._learner.sleep(keep_weights=keep_weights)

    def weight_parts(self) -> int:
        return 1 if self._bucket_bytes is None else self._learner.weight_parts(self._bucket_bytes)

    def weights(self, *, version: int, part: int = 0) -> WeightUpdate:
        if self._asleep:
            self._learner.wake(weights_only=True)
        return self._learner.weights(version=version, part=part, bucket_bytes=self._bucket_bytes)


def _held(batch: Batch | Tensor, common: CommonFacts | None, rows: Tensor | None) -> Batch | BatchShare:
    if common is None:
        return cast("Batch", batch)
    return BatchShare(common.layout.batch(cast("Tensor", batch)), common.rows, rows)
