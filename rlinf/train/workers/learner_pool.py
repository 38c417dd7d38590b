"""The ranks of a learner as one object."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlinf.cluster import Cluster, WorkerError, WorkerGroup
from rlinf.train.workers.learner_worker import LearnerWorker
from rlinf.types import Batch, Metrics, PolicyOutput, WeightUpdate


class LearnerPool:
    """The ranks of a learner as one."""

    def __init__(self, group: WorkerGroup, cluster: Cluster, *, offload: bool = False) -> None:
        """Ranks are :class:`LearnerWorker`. ``offload``: they have something to move in sleep."""
        self.group, self.cluster = group, cluster
        self._offload = offload

    def sleep(self, *, keep_weights: bool = False) -> Metrics:
        """Frees device memory for samplers; whatever is asked of the learner next wakes it. The largest figures."""
        if not self._offload:
            return {}
        numbers = self.group.call(LearnerWorker.sleep, keep_weights=keep_weights)
        return {name: max(number[name] for number in numbers) for name in numbers[0]}

    def evaluate(self, batch: Batch, *, reference: bool = False) -> PolicyOutput:
        """Log-probabilities and values [B, T] of all rows."""
        parts = self.group.call(LearnerWorker.evaluate, self._shared(batch), reference=reference)
        return self._all_rows(parts, batch, "evaluate")

    def teach(self, batch: Batch) -> Tensor:
        """The teacher's log-probabilities [B, T] of all rows."""
        return self._all_rows(self.group.call(LearnerWorker.teach, self._shared(batch)), batch, "teach").logprobs

    def _all_rows(self, parts: Sequence[tuple[Tensor, PolicyOutput]], batch: Batch, method: str) -> PolicyOutput:
        """The shares of the ranks in the order of the batch's rows."""
        rows = torch.cat([part[0] for part in parts])
        order = torch.argsort(rows)

        def joined(name: str) -> Tensor | None:
            columns = [getattr(part[1], name) for part in parts]
            return None if any(column is None for column in columns) else torch.cat(columns)[order]

        logprobs = joined("logprobs")
        if logprobs is None or len(rows) != batch.num_rows:
            raise WorkerError("the learner left rows out", group=self.group.name, rank=0, method=method)
        return PolicyOutput(logprobs, values=joined("values"))

    def update(self, batch: Batch, *, step: int) -> Metrics:
        """All optimiser steps of one batch, on every rank."""
        return self.begin_update(batch, step=step)()

    def begin_update(self, batch: Batch, *, step: int) -> Callable[[], Metrics]:
        """The same without waiting: what is returned waits for it."""
        handles = self.group.submit(LearnerWorker.update.__name__, self._shared(batch), step=step)
        return lambda: self.group.gather(handles)[0]

    def _shared(self, batch: Batch) -> Any:
        """The part of a batch that ranks read. Texts are for reports: each rank would unpickle and copy all of them."""
        return self.cluster.share(batch.replace(metadata={}, domains=None))

    def weights_in_parts(self, *, version: int) -> Iterator[WeightUpdate]:
        """The weights, a part at a time where the ranks have a bucket size."""
        for part in range(self.group.call(LearnerWorker.weight_parts)[0]):
            yield self.group.call(LearnerWorker.weights, version=version, part=part)[0]

    def start(self, stage: str) -> None:
        self.group.call(LearnerWorker.start, stage)

    def scale_lr(self, factor: float) -> None:
        """Multiplies the learning rates that the schedule gives, from the next update on."""
        self.group.call(LearnerWorker.scale_lr, factor)

    def refresh_reference(self, *, keep: float = 0.0) -> None:
        """Moves the reference policy to the current one, but for the share ``keep``."""
        self.group.call(LearnerWorker.refresh_reference, keep=keep)

    def save(self, folder: Path) -> None:
        self.group.call(LearnerWorker.save, folder)

    def load(self, folder: Path) -> None:
        self.group.call(LearnerWorker.load, folder)

    def init_from(self, folder: Path, *, optimizer: bool) -> None:
        """Begins the stage again with the weights of another run's checkpoint, and its optimiser's state if asked."""
        self.group.call(LearnerWorker.init_from, folder, optimizer=optimizer)

    def export(self, folder: Path) -> None:
        self.group.call(LearnerWorker.export, folder)
