"""Env workers whose policy acts in policy servers.

Requests are carried one way and answers the other, without waiting. While the policy answers one stage of a
worker's sub-environments, the worker simulates another (`rollout.pipeline_stages`). A server that is lost is
restarted with the current weights and receives the request again, which gives the same answer. An env worker
that is lost is restarted and begins its part again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlinf.cluster import WORKER_LOST, Cluster, Handle, ValueLost, WorkerGroup, WorkerTimeout
from rlinf.cluster.pool import PolicyPool
from rlinf.data.messages import Metrics
from rlinf.rollouts.simulator.pipelined import Notice
from rlinf.rollouts.simulator.records import RolloutPart
from rlinf.train.workers.env_pool import EnvPool
from rlinf.train.workers.kept_values import with_remote_observations
from rlinf.train.workers.merged_requests import PendingRequest, RequestBatcher, request, split

_TRAJECTORIES = ("collect", "evaluate", "demonstrate")


@dataclass(frozen=True)
class _Call:
    """What is under way, and enough to make it again."""

    worker: int = 0
    life: int = 0
    """Of the worker, by :attr:`ResilientPool.lives`."""
    stage: int | None = None
    """The request whose answer the worker is given; None: it begins."""
    kept: Handle | None = None
    """The worker's requests in its reply, or the images of its result: it stays where the worker is, until a server or
    learner fetches it."""
    questions: Sequence[PendingRequest] = ()
    """Set for a call of a server: the requests of several workers, or of one."""
    server: int = 0
    server_life: int = 0


class ServedEnvPool(EnvPool):
    """Env workers that send requests to policy servers. Fits `rollouts.simulator.rollout.Workers`."""

    def __init__(self, envs: WorkerGroup, servers: WorkerGroup, cluster: Cluster, *, merge: bool = False) -> None:
        """``merge``: questions of several env workers are answered together (:mod:`merged_requests`)."""
        super().__init__(envs)
        self.merge = merge
        self.cluster = cluster
        self.servers = PolicyPool(servers)
        self.timing: Metrics = {}
        """Of the last rollout: how long env workers and servers worked, and how long each side waited, in seconds."""
        self.policy_facts = servers.call_one(0, "facts")

    @property
    def acting(self) -> PolicyPool:
        return self.servers

    def numbers(self) -> Metrics:
        """Restarts of both kinds, and the seconds of the last rollout."""
        return {**super().numbers(), "failures/samplers": float(self.servers.restarts), **self.timing}

    def call(self, method: str, /, *args: Any, per_rank: Sequence[Sequence[Any]] | None = None) -> list[Any]:
        if method not in _TRAJECTORIES:
            return super().call(method, *args, per_rank=per_rank)
        rows = [args] * self.size if per_rank is None else per_rank
        return _Exchange(self, method, rows).run()

    def is_current(self, asker: _Call | PendingRequest) -> bool:
        """Return whether the worker of a call or request is still the one that sent it."""
        return asker.life == self.lives[asker.worker]


class _Exchange:
    """One rollout of all env workers."""

    def __init__(self, pool: ServedEnvPool, method: str, rows: Sequence[Sequence[Any]]) -> None:
        self._pool, self._method, self._rows = pool, method, rows
        self._calls: dict[Handle, _Call] = {}
        self._results: dict[int, Any] = {}
        self._open_requests = [0] * pool.servers.size
        self._env_s = [0.0] * pool.size
        self._policy_s = [0.0] * pool.servers.size
        self._gathering = RequestBatcher(pool.size) if pool.merge else None

    def run(self) -> list[Any]:
        """Return the results of all workers."""
        began = time.perf_counter()
        for rank in range(self._pool.size):
            self._begin(rank)
        while self._calls:
            for handle in self._ready():
                call = self._calls.pop(handle)
                if call.questions:
                    self._finish_server(handle, call)
                elif self._pool.is_current(call):
                    self._finish_env(handle, call)
        wall, pool = time.perf_counter() - began, self._pool
        if self._method == "collect":
            env_s, policy_s = sum(self._env_s) / pool.size, sum(self._policy_s) / pool.servers.size
            pool.timing = {
                "time/env_busy_s": env_s,
                "time/env_waits_s": wall - env_s,
                "time/policy_busy_s": policy_s,
                "time/policy_waits_s": wall - policy_s,
            }
        return [self._results[rank] for rank in range(pool.size)]

    def _ready(self) -> list[Handle]:
        """Return the calls that are done, or past their deadline."""
        try:
            return self._pool.cluster.wait_any(list(self._calls))
        except WorkerTimeout as late:
            return [handle for handle in self._calls if (handle.group, handle.rank) == (late.group, late.rank)]

    def _begin(self, rank: int) -> None:
        if self._gathering is not None:
            self._gathering.forget(rank)
        pool = self._pool
        reply, kept = pool.group.submit_remote(
            rank, "begin", self._method, pool.policy_facts, pool.servers.version, *self._rows[rank]
        )
        self._calls[reply] = _Call(rank, pool.lives[rank], kept=kept)

    def _finish_env(self, handle: Handle, call: _Call) -> None:
        try:
            reply: Notice[Any] = handle.result(timeout=0.0) if not handle.done() else handle.result()
        except WORKER_LOST as error:
            self._pool.restart(call.worker, error)
            self._begin(call.worker)
            return
        self._env_s[call.worker] += reply.busy_s
        assert call.kept is not None
        if isinstance(reply.result, RolloutPart):
            self._results[call.worker] = with_remote_observations(
                reply.result, self._pool.group, call.worker, call.kept
            )
        elif reply.result is not None:
            self._results[call.worker] = reply.result
        requests = [
            PendingRequest(call.worker, call.life, one, call.kept, index) for index, one in enumerate(reply.requests)
        ]
        if self._gathering is None:
            together = [[question] for question in requests]
        else:
            together = self._gathering.add(call.worker, call.stage, requests)
        for questions in together:
            self._send(questions)

    def _finish_server(self, handle: Handle, call: _Call) -> None:
        self._open_requests[call.server] -= 1
        current = [question for question in call.questions if self._pool.is_current(question)]
        if not current:
            return
        try:
            answer, seconds = handle.result(timeout=0.0) if not handle.done() else handle.result()
        except WORKER_LOST as error:
            servers = self._pool.servers
            if call.server_life == servers.lives[call.server]:
                servers.restart(call.server, error)
            self._send(current)
            return
        except ValueLost as error:  # with the node of a worker that waits for the answer
            for question in current:
                self._pool.restart(question.worker, error)
                self._begin(question.worker)
            return
        self._policy_s[call.server] += seconds
        rows = [question.summary.rows for question in call.questions]
        answers = [answer] if len(rows) == 1 else split(answer, rows)
        for question, own in zip(call.questions, answers, strict=True):
            if self._pool.is_current(question):
                reply, kept = self._pool.group.submit_remote(question.worker, "answer", question.summary.stage, own)
                self._calls[reply] = _Call(question.worker, question.life, question.summary.stage, kept)

    def _send(self, questions: Sequence[PendingRequest]) -> None:
        """Send requests to the server with the fewest open."""
        server = min(range(len(self._open_requests)), key=self._open_requests.__getitem__)
        self._open_requests[server] += 1
        servers = self._pool.servers
        handle = servers.group.submit_one(server, "answer", request(questions))
        self._calls[handle] = _Call(questions=questions, server=server, server_life=servers.lives[server])
