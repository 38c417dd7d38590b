"""A session with several samplers: slices of work that wait in line, aborts, and a sampler that is lost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from rlinf.cluster import WorkerDied
from rlinf.data.messages import Completion, SampleRequest, SamplingParams
from rlinf.data.token_array import TokenArray
from rlinf.train.workers.sampler_session import PoolSession
from rlinf.train.workers.sampler_worker import SamplerWorker


@dataclass
class Countdown:
    """A sampler whose request i takes i + 1 polls; a session of itself."""

    left: dict[int, int] = field(default_factory=dict)
    aborted: list[int] = field(default_factory=list)

    def session(self) -> Countdown:
        return self

    @property
    def open(self) -> int:
        return len(self.left)

    def submit(self, requests: Sequence[SampleRequest]) -> None:
        self.left.update((one.request_id, one.request_id + 1) for one in requests)

    def poll(self, max_s: float) -> list[Completion]:
        self.left = {name: polls - 1 for name, polls in self.left.items()}
        return self._end([name for name, polls in self.left.items() if not polls], "stop")

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        self.aborted += request_ids
        return self._end([name for name in request_ids if name in self.left], "abort")

    def close(self) -> None:
        self.left.clear()

    def _end(self, names: Sequence[int], reason: str) -> list[Completion]:
        for name in names:
            del self.left[name]
        empty = TokenArray.ints(())
        return [Completion(name, 0, empty, TokenArray.floats(()), reason, empty) for name in names]


class Handle:
    """A call that is made when its result is taken, as a worker makes calls in their order."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result = call


@dataclass
class Pool:
    """One worker; the group, the cluster and the pool of it."""

    concurrent: bool = True
    dies_at: int | None = None
    size: int = 1
    redone: int = 0
    calls: int = 0
    sampler: Countdown = field(default_factory=Countdown)

    def __post_init__(self) -> None:
        self.group = self.cluster = self
        self.worker: Any = SamplerWorker(self.sampler)  # type: ignore[arg-type]

    def submit_one(self, rank: int, method: str, *args: Any) -> Handle:
        self.calls += 1
        number, worker = self.calls, self.worker

        def call() -> Any:
            if number == self.dies_at:
                raise WorkerDied("samplers[0] was killed", group="samplers", rank=rank, method=method)
            return getattr(worker, method)(*args)

        return Handle(call)

    def call_one(self, rank: int, method: str) -> None:
        getattr(self.worker, method)()

    def wait_any(self, pending: Sequence[Handle], timeout: float) -> Sequence[Handle]:
        return pending

    def restart(self, rank: int, error: Exception) -> None:
        self.sampler = Countdown()
        self.worker = SamplerWorker(self.sampler)  # type: ignore[arg-type]


def requests_of(count: int) -> list[SampleRequest]:
    return [SampleRequest(i, (1,), 1, SamplingParams(max_new_tokens=4), (i,)) for i in range(count)]


def finished(session: PoolSession) -> list[int]:
    done: list[int] = []
    while session.open:
        done += [one.request_id for one in session.poll(1.0)]
    session.close()
    return done


@pytest.mark.parametrize(("concurrent", "waiting"), [(True, 2), (False, 1)])
def test_a_sampler_side_by_side_has_its_next_slice_in_line(concurrent: bool, waiting: int) -> None:
    pool = Pool(concurrent)
    session = PoolSession(pool, slice_s=0.0)  # type: ignore[arg-type]
    session.submit(requests_of(4))
    assert pool.calls == (waiting if concurrent else 0)  # side by side it begins before anyone waits for it
    session.poll(1.0)
    assert pool.calls == (waiting + 1 if concurrent else 1)
    assert finished(session) == [1, 2, 3]


def test_a_lost_sampler_is_sent_again_what_it_had_not_finished() -> None:
    pool = Pool(dies_at=2)
    session = PoolSession(pool, slice_s=0.0)  # type: ignore[arg-type]
    session.submit(requests_of(3))
    assert finished(session) == [0, 1, 2]
    assert pool.redone == 2


def test_a_request_is_ended_once() -> None:
    pool = Pool()
    session = PoolSession(pool, slice_s=0.0)  # type: ignore[arg-type]
    session.submit(requests_of(9))
    ended = [one.request_id for one in session.poll(1.0)]
    while session.open:
        session.abort(range(9))
        ended += [one.request_id for one in session.poll(1.0)]
    assert sorted(ended) == list(range(9))
    assert sorted(pool.sampler.aborted) == sorted(set(pool.sampler.aborted))
