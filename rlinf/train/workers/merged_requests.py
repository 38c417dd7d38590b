"""Requests of several env workers as one batch: one pass of a large policy decides for all of them.

The batches do not depend on the order in which requests arrive. Those of a stage wait until every env worker
that still plays the stage has sent one. So a run can be repeated, though a matrix product may round otherwise
than if each worker is answered alone.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlinf.cluster import Handle
from rlinf.cluster.api import Assembled
from rlinf.data.messages import PolicyOutput
from rlinf.models.policy_requests import Decision, PolicyRequest
from rlinf.rollouts.simulator.pipelined import RequestSummary


@dataclass(frozen=True)
class PendingRequest:
    """The request of a stage of an env worker."""

    worker: int
    life: int
    """Of the worker, by `ResilientPool.lives`."""
    summary: RequestSummary
    kept: Handle
    """Of the worker's requests, which lie where it made them ..."""
    index: int
    """... and which of them this is."""


class RequestBatcher:
    """Holds `decide` questions back until their stage is complete."""

    def __init__(self, workers: int) -> None:
        self._workers = range(workers)
        self._begun: set[int] = set()
        self._playing: dict[int, set[int]] = defaultdict(set)
        """Of each worker, the stages that have a question open or an answer on its way."""
        self._held: dict[int, dict[int, PendingRequest]] = defaultdict(dict)

    def forget(self, worker: int) -> None:
        """Drop the pending requests of a worker that begins again."""
        self._begun.discard(worker)
        self._playing[worker].clear()
        for held in self._held.values():
            held.pop(worker, None)

    def add(self, worker: int, answered: int | None, requests: Sequence[PendingRequest]) -> list[list[PendingRequest]]:
        """Record a worker's next requests, after the answer to stage ``answered`` (None: it has begun).

        Returns what can be sent now, each list as one batch.
        """
        self._begun.add(worker)
        if answered is not None:
            self._playing[worker].discard(answered)
        now = [[question] for question in requests if question.summary.method != "decide"]
        for question in requests:
            if question.summary.method == "decide":
                self._playing[worker].add(question.summary.stage)
                self._held[question.summary.stage][worker] = question
        for stage, held in self._held.items():
            if held and all(self._ready(each, stage) for each in self._workers):
                now.append([held[each] for each in sorted(held)])
                held.clear()
        return now

    def _ready(self, worker: int, stage: int) -> bool:
        """Return whether a worker has sent its request, or plays this stage no more."""
        return worker in self._held[stage] or (worker in self._begun and stage not in self._playing[worker])


def request(questions: Sequence[PendingRequest]) -> Assembled:
    """Combine the requests into one for a policy server, which fetches them from the workers' nodes."""
    indices = [question.index for question in questions]
    return Assembled(functools.partial(_request, indices), tuple(question.kept for question in questions))


def _request(indices: Sequence[int], *kept: Sequence[PolicyRequest]) -> PolicyRequest:
    return merged([requests[index] for index, requests in zip(indices, kept, strict=True)])


def merged(requests: Sequence[PolicyRequest]) -> PolicyRequest:
    """Return several `decide` requests as one, row after row."""
    if len(requests) == 1:
        return requests[0]
    observations, states, noises = zip(*(request.arguments for request in requests), strict=True)
    leaves = {name: np.concatenate([each[name] for each in observations]) for name in observations[0]}
    noise = None if noises[0] is None else np.concatenate(noises)
    return PolicyRequest("decide", (leaves, np.concatenate(states), noise))


def split(decision: Decision, rows: Sequence[int]) -> list[Decision]:
    """Split the answer to all requests into the part of each; ``rows`` are those of each."""
    ends = np.cumsum(rows).tolist()
    return [_rows(decision, slice(end - own, end)) for own, end in zip(rows, ends, strict=True)]


def _rows(decision: Decision, rows: slice) -> Decision:
    output = decision.output
    if output is not None:
        output = PolicyOutput(output.logprobs[rows], values=None if output.values is None else output.values[rows])
    return Decision(decision.actions[rows], decision.env_actions[rows], decision.state[rows], output)
