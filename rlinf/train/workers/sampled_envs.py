"""Env workers whose policy acts in sampler actors: carries questions one way and answers the other, without waiting.

While the policy answers one stage of a worker's lanes, the worker simulates another (`rollout.pipeline_stages`). A
sampler that dies is started anew with the current weights and asked again, which gives the same answer; an env worker
that dies is started anew and begins its part again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlinf.cluster import WORKER_LOST, Cluster, Handle, WorkerGroup, WorkerTimeout
from rlinf.models.policy_requests import PolicyRequest
from rlinf.rollouts.simulator.pipelined import WorkerMessage
from rlinf.train.workers.env_pool import EnvPool
from rlinf.types import Metrics, WeightUpdate

_COURSES = ("collect", "evaluate", "demonstrate")


@dataclass(frozen=True)
class _Call:
    """What is under way, and enough to make it again."""

    worker: int
    life: int
    """How often the worker had been started anew: an answer to its predecessor is of no use."""
    question: tuple[int, PolicyRequest] | None = None
    """Set where a sampler is asked."""
    sampler: int = 0
    sampler_life: int = 0


class SampledEnvPool(EnvPool):
    """Fits `rollouts.vector.Workers`."""

    def __init__(self, envs: WorkerGroup, samplers: WorkerGroup, cluster: Cluster) -> None:
        super().__init__(envs, cluster)
        self.samplers = samplers
        self.sampler_restarts = 0
        self.timing: Metrics = {}
        """Of the last rollout: how long env workers and samplers worked, and how long each side waited, in seconds."""
        self._facts = samplers.call_one(0, "facts")
        self._version = 0
        self._update: Any = None
        self._lives = [0] * envs.size
        self._sampler_lives = [0] * samplers.size

    def numbers(self) -> Metrics:
        """Restarts of both kinds, and the seconds of the last rollout."""
        return {**super().numbers(), "failures/samplers": float(self.sampler_restarts), **self.timing}

    def call(self, method: str, /, *args: Any, per_rank: Sequence[Sequence[Any]] | None = None) -> list[Any]:
        if method == "load":
            self._load(*args)
            return [None] * self.size
        if method not in _COURSES:
            return super().call(method, *args, per_rank=per_rank)
        rows = [args] * self.size if per_rank is None else per_rank
        return _Exchange(self, method, rows).run()

    def _load(self, update: WeightUpdate) -> None:
        """To every sampler; one that dies meanwhile is started anew with them."""
        self._update, self._version = self.cluster.share(update), update.version
        handles = [self.samplers.submit_one(rank, "load", self._update) for rank in range(self.samplers.size)]
        for rank, handle in enumerate(handles):
            try:
                handle.result()
            except WORKER_LOST:
                self.revive_sampler(rank)

    def revive_sampler(self, rank: int) -> None:
        """Started anew, with the current weights."""
        self.samplers.restart(rank)
        self.sampler_restarts += 1
        self._sampler_lives[rank] += 1
        if self._update is not None:
            self.samplers.call_one(rank, "load", self._update)

    def revive_env(self, rank: int) -> None:
        """Started anew, going on with episodes that were not begun before."""
        self._revive(rank)
        self._lives[rank] += 1

    def begin(self, rank: int, method: str, arguments: Sequence[Any]) -> tuple[Handle, _Call]:
        """Starts an env worker on its part."""
        handle = self.group.submit_one(rank, "begin", method, self._facts, self._version, *arguments)
        return handle, _Call(rank, self._lives[rank])

    def ask(self, call: _Call, question: tuple[int, PolicyRequest], sampler: int) -> tuple[Handle, _Call]:
        """Puts a worker's question to a sampler."""
        handle = self.samplers.submit_one(sampler, "answer", question[1])
        return handle, _Call(call.worker, call.life, question, sampler, self._sampler_lives[sampler])

    def tell(self, call: _Call, answer: Any) -> tuple[Handle, _Call]:
        """Gives a worker the answer to its question."""
        assert call.question is not None
        handle = self.group.submit_one(call.worker, "answer", call.question[0], answer)
        return handle, _Call(call.worker, call.life)

    def is_current(self, call: _Call) -> bool:
        """Whether the worker that a call is for is still the one that asked."""
        return call.life == self._lives[call.worker]

    def sampler_lives(self, call: _Call) -> bool:
        """Whether the sampler that was asked is still the same."""
        return call.sampler_life == self._sampler_lives[call.sampler]


class _Exchange:
    """One rollout of all env workers."""

    def __init__(self, pool: SampledEnvPool, method: str, rows: Sequence[Sequence[Any]]) -> None:
        self._pool, self._method, self._rows = pool, method, rows
        self._calls: dict[Handle, _Call] = {}
        self._results: dict[int, Any] = {}
        self._asked = [0] * pool.samplers.size
        self._env_s = [0.0] * pool.size
        self._policy_s = [0.0] * pool.samplers.size

    def run(self) -> list[Any]:
        """The results of all workers."""
        began = time.perf_counter()
        for rank in range(self._pool.size):
            self._begin(rank)
        while self._calls:
            for handle in self._ready():
                call = self._calls.pop(handle)
                if not self._pool.is_current(call):
                    self._release(call)
                elif call.question is None:
                    self._hear_env(handle, call)
                else:
                    self._hear_sampler(handle, call)
        wall, pool = time.perf_counter() - began, self._pool
        if self._method == "collect":
            env_s, policy_s = sum(self._env_s) / pool.size, sum(self._policy_s) / pool.samplers.size
            pool.timing = {
                "time/env_busy_s": env_s,
                "time/env_waits_s": wall - env_s,
                "time/policy_busy_s": policy_s,
                "time/policy_waits_s": wall - policy_s,
            }
        return [self._results[rank] for rank in range(pool.size)]

    def _ready(self) -> list[Handle]:
        """The calls that are done, or past their deadline."""
        try:
            return self._pool.cluster.wait_any(list(self._calls))
        except WorkerTimeout as late:
            return [handle for handle in self._calls if (handle.group, handle.rank) == (late.group, late.rank)]

    def _begin(self, rank: int) -> None:
        self._add(*self._pool.begin(rank, self._method, self._rows[rank]))

    def _add(self, handle: Handle, call: _Call) -> None:
        self._calls[handle] = call

    def _hear_env(self, handle: Handle, call: _Call) -> None:
        try:
            reply: WorkerMessage[Any] = handle.result(timeout=0.0) if not handle.done() else handle.result()
        except WORKER_LOST:
            self._pool.revive_env(call.worker)
            self._begin(call.worker)
            return
        self._env_s[call.worker] += reply.busy_s
        if reply.result is not None:
            self._results[call.worker] = reply.result
        for question in reply.questions:
            self._ask(call, question)

    def _hear_sampler(self, handle: Handle, call: _Call) -> None:
        assert call.question is not None
        self._release(call)
        try:
            answer, seconds = handle.result(timeout=0.0) if not handle.done() else handle.result()
        except WORKER_LOST:
            if self._pool.sampler_lives(call):
                self._pool.revive_sampler(call.sampler)
            self._ask(call, call.question)
            return
        self._policy_s[call.sampler] += seconds
        self._add(*self._pool.tell(call, answer))

    def _ask(self, call: _Call, question: tuple[int, PolicyRequest]) -> None:
        """The sampler with the fewest questions open."""
        sampler = min(range(len(self._asked)), key=self._asked.__getitem__)
        self._asked[sampler] += 1
        self._add(*self._pool.ask(call, question, sampler))

    def _release(self, call: _Call) -> None:
        if call.question is not None:
            self._asked[call.sampler] -= 1
