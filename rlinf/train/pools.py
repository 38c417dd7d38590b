"""The groups of a run as single objects: one sampler, one vector of text environments, one learner.

Splitting work over workers and bringing a dead one back happens here, so that rollouts and the loop know nothing of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlinf.cluster import Cluster, WorkerDied, WorkerError, WorkerGroup, WorkerTimeout
from rlinf.rollouts.text_env import EnvFacts
from rlinf.types import Batch, Completion, Metrics, PolicyOutput, SampleRequest, WeightUpdate

_GONE = (WorkerDied, WorkerTimeout)


def shares(count: int, parts: int, *, unit: int = 1) -> list[slice]:
    """``count`` rows in ``parts`` consecutive slices of whole units (groups), as even as that allows.

    >>> shares(6, 2, unit=2)
    [slice(0, 4, None), slice(4, 6, None)]
    """
    units = -(-count // unit)
    edges = [min(count, -(-units * part // parts) * unit) for part in range(parts + 1)]
    return [slice(start, end) for start, end in itertools.pairwise(edges)]


class SamplerPool:
    """Samplers that share the prompts. One that dies is started anew with the current weights; its part is redone."""

    def __init__(self, group: WorkerGroup, cluster: Cluster) -> None:
        self.group, self.cluster = group, cluster
        self.restarts = 0
        self._update: Any = None

    def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        parts = [list(requests[part]) for part in shares(len(requests), self.group.size)]
        handles = {rank: self.group.submit_one(rank, "sample", part) for rank, part in enumerate(parts) if part}
        completions: list[Completion] = []
        for rank, handle in handles.items():
            try:
                completions += handle.result()
            except _GONE:
                self._revive(rank)
                completions += self.group.call_one(rank, "sample", parts[rank])
        return completions

    def stream(self, requests: Sequence[SampleRequest]) -> Iterator[Completion]:
        yield from self.sample(requests)

    def load(self, update: WeightUpdate) -> Metrics:
        self._update = self.cluster.share(update)
        numbers = self.group.call("load", self._update)
        return {name: max(float(number[name]) for number in numbers) for name in numbers[0]}

    def sleep(self) -> None:
        self.group.call("sleep")

    def wake(self) -> None:
        self.group.call("wake")

    def _revive(self, rank: int) -> None:
        self.group.restart(rank)
        self.restarts += 1
        if self._update is not None:
            self.group.call_one(rank, "load", self._update)


class TextEnvPool:
    """Text environments of all workers as one. A worker that dies is started anew, its conversations are replayed."""

    def __init__(self, group: WorkerGroup) -> None:
        self.group = group
        self.restarts = 0
        self._open: dict[int, tuple[str, list[int], list[list[str]]]] = {}
        """Rank -> side, task ids and all actions since the last reset: enough to replay."""
        self._slices: list[slice] = []

    def facts(self, side: str) -> EnvFacts:
        return self.group.call_one(0, "facts", side)

    def demonstrations(self, side: str, task_ids: Sequence[int]) -> list[tuple[str, str]]:
        return self.group.call_one(0, "demonstrations", side, list(task_ids))

    def reset(self, side: str, task_ids: Sequence[int]) -> tuple[list[str], dict[str, Any]]:
        self._slices = shares(len(task_ids), self.group.size)
        parts = [list(task_ids[part]) for part in self._slices]
        self._open = {rank: (side, part, []) for rank, part in enumerate(parts) if part}
        results = self._call({rank: ("reset", side, parts[rank]) for rank in self._open})
        observations = [text for result in results for text in result[0]]
        return observations, _columns([result[1] for result in results], [len(result[0]) for result in results])

    def step(self, side: str, actions: Sequence[str]) -> tuple[list[str], Any, Any, Any, dict[str, Any]]:
        parts = {rank: list(actions[self._slices[rank]]) for rank in self._open}
        results = self._call({rank: ("step", side, part) for rank, part in parts.items()})
        for rank, part in parts.items():
            self._open[rank][2].append(part)
        infos = _columns([result[4] for result in results], [len(result[0]) for result in results])
        rewards, terminated, truncated = (np.concatenate([result[i] for result in results]) for i in (1, 2, 3))
        return [text for result in results for text in result[0]], rewards, terminated, truncated, infos

    def _call(self, calls: dict[int, tuple[str, str, list[Any]]]) -> list[Any]:
        handles = {rank: self.group.submit_one(rank, *call) for rank, call in calls.items()}
        results = []
        for rank, handle in handles.items():
            try:
                results.append(handle.result())
            except _GONE:
                results.append(self._replay(rank, calls[rank]))
        return results

    def _replay(self, rank: int, call: tuple[str, str, list[Any]]) -> Any:
        """Starts the worker anew, brings its conversations to where they were, and makes the call again."""
        self.group.restart(rank)
        self.restarts += 1
        side, task_ids, actions = self._open[rank]
        if call[0] == "step":
            self.group.call_one(rank, "reset", side, task_ids)
            for taken in actions:
                self.group.call_one(rank, "step", side, taken)
        return self.group.call_one(rank, *call)


def _columns(infos: Sequence[dict[str, Any]], sizes: Sequence[int]) -> dict[str, Any]:
    """Columnar infos of several workers, one after another; what is no column of that length is left out."""
    names = [
        name for name in infos[0]
        if all(name in info and len(info[name]) == size for info, size in zip(infos, sizes, strict=True))
    ]  # fmt: skip
    return {name: [value for info in infos for value in info[name]] for name in names}


class LearnerPool:
    """The ranks of a learner as one."""

    def __init__(self, group: WorkerGroup, cluster: Cluster) -> None:
        self.group, self.cluster = group, cluster

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
