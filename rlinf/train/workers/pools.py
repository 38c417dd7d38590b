"""The groups of a run as single objects: one vector of text environments, one learner (samplers: sampler_pool.py).

Splitting work over workers and bringing a dead one back happens here, so that rollouts and the loop know nothing of it.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlinf.cluster import WORKER_LOST, Cluster, Handle, WorkerError, WorkerGroup
from rlinf.rollouts.text.env_worker import EnvFacts
from rlinf.rollouts.text.grading import Graded, GradedColumns, Response
from rlinf.types import Batch, Metrics, PolicyOutput, WeightUpdate

_GATHER_S = 0.01
_log = logging.getLogger(__name__)


def shares(count: int, parts: int, *, unit: int = 1) -> list[slice]:
    """``count`` rows in ``parts`` consecutive slices of whole units (groups), as even as that allows.

    >>> shares(6, 2, unit=2)
    [slice(0, 4, None), slice(4, 6, None)]
    """
    units = -(-count // unit)
    edges = [min(count, -(-units * part // parts) * unit) for part in range(parts + 1)]
    return [slice(start, end) for start, end in itertools.pairwise(edges)]


class TextEnvPool:
    """Text environments of all workers as one. A worker that dies is started anew, its conversations are replayed."""

    def __init__(self, group: WorkerGroup) -> None:
        self.group = group
        self.restarts = 0
        self._in_part: dict[str, bool] = {}
        self._busy_s = [0.0] * group.size
        self._open: dict[int, tuple[str, list[int], list[list[Response]]]] = {}
        """Rank -> side, task ids and all responses since the last reset (by the worker's own rows): for replay."""
        self._slices: list[slice] = []

    @property
    def busy_s(self) -> float:
        """Seconds of grading so far, of the busiest worker."""
        return max(self._busy_s)

    def facts(self, side: str) -> EnvFacts:
        facts: EnvFacts = self.group.call_one(0, "facts", side)
        self._in_part[side] = facts.steps_in_part
        return facts

    def demonstrations(self, side: str, task_ids: Sequence[int]) -> list[tuple[str, str]]:
        return self.group.call_one(0, "demonstrations", side, list(task_ids))

    def reset(self, side: str, task_ids: Sequence[int]) -> tuple[list[str], dict[str, Any]]:
        self._slices = shares(len(task_ids), self.group.size)
        parts = [list(task_ids[part]) for part in self._slices]
        self._open = {rank: (side, part, []) for rank, part in enumerate(parts) if part}
        handles = {rank: self.group.submit_one(rank, "reset", side, parts[rank]) for rank in self._open}
        results = []
        for rank, handle in handles.items():
            try:
                results.append(handle.result())
            except WORKER_LOST as error:
                results.append(self._replay(rank, error))
        observations = [text for result in results for text in result[0]]
        return observations, _columns([result[1] for result in results], [len(result[0]) for result in results])

    def grade(self, side: str, count: int, responses: Iterable[Response]) -> Iterator[Graded]:
        """What is said to each of ``responses``, in any order.

        A worker that is free is given the responses that have come for it so far, while more are awaited: those that
        come within :data:`_GATHER_S` go together. Environments that can't step in part get all at the end.
        """
        in_part = self._in_part[side] if side in self._in_part else self.facts(side).steps_in_part
        desk = {rank: _PendingGrades() for rank in self._open}
        for response in responses:
            rank = next(rank for rank in desk if self._slices[rank].start <= response.place < self._slices[rank].stop)
            desk[rank].add(response._replace(place=response.place - self._slices[rank].start))
            if in_part:
                for rank in [rank for rank in desk if desk[rank].due()]:
                    yield from self._collect(rank, desk[rank])
                    self._hand_in(rank, desk[rank])
        while any(one.waiting or one.handle for one in desk.values()):
            for rank, one in desk.items():
                yield from self._collect(rank, one)
            for rank, one in desk.items():
                self._hand_in(rank, one)

    def _hand_in(self, rank: int, desk: _PendingGrades) -> None:
        if desk.waiting:
            side, tasks, _ = self._open[rank]
            desk.given, desk.waiting = desk.waiting, []
            desk.handle = self.group.submit_one(rank, "answer", side, len(tasks), desk.given)

    def _collect(self, rank: int, desk: _PendingGrades) -> Iterator[Graded]:
        """Waits for what the worker was given last."""
        if desk.handle is None:
            return
        handle, desk.handle = desk.handle, None
        try:
            graded: GradedColumns = handle.result()
        except WORKER_LOST as error:
            self._replay(rank, error)
            side, tasks, _ = self._open[rank]
            graded = self.group.call_one(rank, "answer", side, len(tasks), desk.given)
        self._open[rank][2].append(desk.given)
        self._busy_s[rank] += graded.seconds
        yield from graded.rows([self._slices[rank].start + response.place for response in desk.given])

    def _replay(self, rank: int, error: Exception) -> Any:
        """Starts the worker anew and brings its conversations to where they were; returns their reset."""
        _log.warning("an environment worker is started anew: %s", error)
        self.group.restart(rank)
        self.restarts += 1
        side, task_ids, past = self._open[rank]
        started = self.group.call_one(rank, "reset", side, task_ids)
        for given in past:
            self.group.call_one(rank, "answer", side, len(task_ids), given)
        return started


@dataclass
class _PendingGrades:
    """What one worker has to grade: ``given`` is with it while there is a ``handle``, ``waiting`` comes next."""

    waiting: list[Response] = field(default_factory=list)
    given: list[Response] = field(default_factory=list)
    handle: Handle | None = None
    _since: float = 0.0

    def add(self, response: Response) -> None:
        if not self.waiting:
            self._since = time.monotonic()
        self.waiting.append(response)

    def due(self) -> bool:
        """The oldest response has waited long enough, and the worker is free."""
        late = bool(self.waiting) and time.monotonic() - self._since >= _GATHER_S
        return late and (self.handle is None or self.handle.done())


def _columns(infos: Sequence[dict[str, Any]], sizes: Sequence[int]) -> dict[str, Any]:
    """Columnar infos of several workers, one after another; what is no column of that length is left out."""
    names = [
        name for name in infos[0]
        if all(name in info and len(info[name]) == size for info, size in zip(infos, sizes, strict=True))
    ]  # fmt: skip
    return {name: [value for info in infos for value in info[name]] for name in names}


class LearnerPool:
    """The ranks of a learner as one."""

    def __init__(self, group: WorkerGroup, cluster: Cluster, *, in_parts: bool = False, offload: bool = False) -> None:
        """``in_parts``: the ranks give their weights in parts. ``offload``: they have something to move in sleep."""
        self.group, self.cluster = group, cluster
        self._in_parts, self._offload = in_parts, offload

    def sleep(self, *, keep_weights: bool = False) -> Metrics:
        """Frees device memory for samplers; whatever is asked of the learner next wakes it. The largest figures."""
        if not self._offload:
            return {}
        numbers = self.group.call("sleep", keep_weights=keep_weights)
        return {name: max(number[name] for number in numbers) for name in numbers[0]}

    def evaluate(self, batch: Batch, *, reference: bool = False) -> PolicyOutput:
        """Log-probabilities and values [B, T] of all rows."""
        parts = self.group.call("evaluate", self.cluster.share(batch), reference=reference)
        rows = torch.cat([part[0] for part in parts])
        order = torch.argsort(rows)

        def joined(name: str) -> Tensor | None:
            columns = [getattr(part[1], name) for part in parts]
            return None if any(column is None for column in columns) else torch.cat(columns)[order]

        logprobs = joined("logprobs")
        if logprobs is None or len(rows) != batch.num_rows:
            raise WorkerError("the learner left rows out", group=self.group.name, rank=0, method="evaluate")
        return PolicyOutput(logprobs, values=joined("values"))

    def update(self, batch: Batch, *, step: int) -> Metrics:
        return self.group.call("update", self.cluster.share(batch), step=step)[0]

    def weights(self, *, version: int) -> WeightUpdate:
        return self.group.call("weights", version=version)[0]

    def weights_in_parts(self, *, version: int) -> Iterator[WeightUpdate]:
        """The same weights, never all at once where the ranks know parts."""
        if not self._in_parts:
            yield self.weights(version=version)
            return
        for part in range(self.group.call("weight_parts")[0]):
            yield self.group.call("weights", version=version, part=part)[0]

    def start(self, stage: str) -> None:
        self.group.call("start", stage)

    def refresh_reference(self) -> None:
        self.group.call("refresh_reference")

    def save(self, folder: Path) -> None:
        self.group.call("save", folder)

    def load(self, folder: Path) -> None:
        self.group.call("load", folder)

    def export(self, folder: Path) -> None:
        self.group.call("export", folder)
