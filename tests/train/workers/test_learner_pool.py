"""A worker that dies is restarted, its part is redone, and what comes back is complete and in order."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from answering import graded

from rlinf.base.errors import UserError
from rlinf.cluster import Handle, Stream, WorkerDied, WorkerError
from rlinf.cluster.local import LocalHandle
from rlinf.data.messages import Completion, SampleRequest, SamplingParams
from rlinf.data.split import split_evenly
from rlinf.rollouts.text.conversation import Feedback, FeedbackBatch, Response
from rlinf.rollouts.text.env_worker import EnvFacts
from rlinf.schema import EnvConfig
from rlinf.train.workers.env_pool import EnvPool
from rlinf.train.workers.sampler_pool import SamplerPool
from rlinf.train.workers.text_env_pool import TextEnvPool


class Items(Stream):
    """The items of a generator; after ``dies_after`` of them the worker is gone."""

    def __init__(self, rank: int, method: str, items: Iterator[Any], dies_after: int | None) -> None:
        self.group, self.rank, self.method = "fake", rank, method
        self.items, self.left = items, dies_after

    def __next__(self) -> Any:
        if self.left == 0:
            raise WorkerDied("died", group=self.group, rank=self.rank, method=self.method)
        self.left = None if self.left is None else self.left - 1
        return next(self.items)

    def close(self) -> None: ...


class Group:
    """Workers of this process; ``dies`` names (rank, method) of calls that end a worker, each once: a stream after
    that number of items."""

    name = "fake"

    def __init__(self, make: Any, size: int, dies: dict[tuple[int, str], int]) -> None:
        self.make, self.size, self.dies = make, size, dies
        self.workers = [make() for _ in range(size)]
        self.restarted: list[int] = []

    def call_one(self, rank: int, method: str, *args: Any) -> Any:
        return self.submit_one(rank, method, *args).result()

    def call(self, method: str, *args: Any) -> list[Any]:
        return [self.call_one(rank, method, *args) for rank in range(self.size)]

    def submit_one(self, rank: int, method: str, *args: Any) -> Handle:
        if self.dies.pop((rank, method), None) is not None:
            error = WorkerDied("died", group=self.name, rank=rank, method=method)
            return LocalHandle(self.name, rank, method, None, error)
        return LocalHandle(self.name, rank, method, getattr(self.workers[rank], method)(*args), None)

    def stream(self, rank: int, method: str, *args: Any) -> Stream:
        items = getattr(self.workers[rank], method)(*args)
        return Items(rank, method, items, self.dies.pop((rank, method), None))

    def restart(self, ranks: Sequence[int], *, counted: bool = True) -> None:
        for rank in ranks:
            self.workers[rank] = self.make()
        self.restarted += ranks


class Waits:
    """The latest stream first: the order of arrival must not matter."""

    concurrent = True

    def wait_any(self, pending: Sequence[Any], timeout: float | None = None) -> list[Any]:
        return [pending[-1]]


class Speaker:
    """Answers with its sample number and the version of its weights, three at a time."""

    version = -1

    def stream_portions(self, requests: Sequence[SampleRequest]) -> Iterator[list[Completion]]:
        done = [
            Completion(request.request_id, sample, (request.key[-1], sample), (0.0,) * 2, "stop", (self.version,) * 2)
            for request in requests
            for sample in range(request.first_sample, request.first_sample + request.n)
        ]
        for start in range(0, len(done), 3):
            yield done[start : start + 3]


class SetsVersion:
    """A transport that only counts."""

    name = "fake"

    def __init__(self, group: Group) -> None:
        self.group = group

    def send(self, version: int, revive: Any) -> dict[str, float]:
        self.version = version
        for worker in self.group.workers:
            worker.version = version
        return {"weight_update_s": 0.0}

    def send_again(self, rank: int) -> None:
        self.group.workers[rank].version = self.version


def connected(group: Group) -> SamplerPool:
    pool = SamplerPool(group, Waits())  # type: ignore[arg-type]
    pool.connect(SetsVersion(group))
    return pool


class Counter:
    """Conversations that count their turns: a replay must bring them back to the same count."""

    def facts(self, split: str) -> EnvFacts:
        return EnvFacts(num_tasks=100, system_prompt=None, max_turns=2, notes={}, steps_in_part=True)

    def reset(self, split: str, task_ids: list[int], first: int) -> tuple[tuple[str, ...], dict[str, Any]]:
        self.turns = dict.fromkeys(range(first, first + len(task_ids)), 0)
        self.tasks = dict(zip(self.turns, task_ids, strict=True))
        return tuple(map(str, task_ids)), {"task_id": task_ids}

    def exchange(self, split: str, responses: list[Response], wait_s: float) -> FeedbackBatch:
        for row, *_ in responses:
            self.turns[row] += 1
        rows = []
        for row, text, cut, _ in responses:
            turn = float(self.turns[row])
            rows.append(
                Feedback(row, f"{self.tasks[row]}:{self.turns[row]}:{text}{'!' * cut}", turn, False, {"turn": turn})
            )
        return FeedbackBatch(rows, 0.25)

    def replay(self, split: str, responses: list[Response]) -> None:
        self.exchange(split, responses, 0.0)


@pytest.mark.parametrize(("count", "parts"), [(12, 3), (7, 2), (8, 3), (2, 4), (0, 2)])
def test_shares_are_even_and_complete(count: int, parts: int) -> None:
    pieces = split_evenly(count, parts)
    assert [row for piece in pieces for row in range(count)[piece]] == list(range(count))
    assert len(pieces) == parts
    assert {len(range(count)[piece]) for piece in pieces} <= {count // parts, -(-count // parts)}


@pytest.mark.parametrize("portions", [0, 1, 2])
def test_a_sampler_that_dies_gets_the_current_weights_and_only_what_is_missing_is_redone(portions: int) -> None:
    group = Group(Speaker, 2, {(1, "stream_portions"): portions})
    pool = connected(group)
    pool.send_weights(7)
    params = SamplingParams(max_new_tokens=1)
    requests = [SampleRequest(10 * i, (1,), 4, params, (0, i), first_sample=2) for i in range(5)]
    done = pool.sample(requests)
    assert [(c.request_id, c.sample_index) for c in done] == [(10 * i, 2 + j) for i in range(5) for j in range(4)]
    assert all(c.token_ids == (c.request_id // 10, c.sample_index) for c in done)
    assert {c.policy_version for c in done} == {(7, 7)}
    assert group.restarted == [1]
    assert (pool.restarts, pool.redone) == (1, 8 - 3 * portions)


def test_an_env_worker_that_dies_is_brought_back_to_where_its_conversations_were() -> None:
    group = Group(Counter, 2, {})
    pool = TextEnvPool(group, EnvConfig())  # type: ignore[arg-type]
    observations, infos = pool.reset("train", [10, 11, 12])
    assert observations == ["10", "11", "12"]
    assert list(infos["task_id"]) == [10, 11, 12]
    graded(pool.answers(), *[Response(index, "a", cut=False) for index in range(3)])
    group.dies[0, "exchange"] = 0
    last = [Response(2, "z", cut=True), Response(1, "y", cut=False), Response(0, "x", cut=True)]
    found = {one.row_index: one for one in graded(pool.answers(), *last)}
    assert [found[index].observation for index in range(3)] == ["10:2:x!", "11:2:y", "12:2:z!"]
    assert [found[index].facts["turn"] for index in range(3)] == [2.0] * 3
    assert pool.restarts == 1
    assert pool.busy_s == 0.5


def test_a_worker_that_is_free_is_given_what_has_come() -> None:
    pool = TextEnvPool(Group(Counter, 2, {}), EnvConfig())  # type: ignore[arg-type]
    pool.reset("train", [10, 11, 12])
    answers = pool.answers()
    answers.give([Response(0, "a", cut=False)])
    assert [one.row_index for one in answers.take(0.0, complete=False)] == [0]
    answers.give([Response(index, "a", cut=False) for index in (1, 2)])
    assert sorted(one.row_index for one in answers.take(0.0, complete=False)) == [1, 2]
    assert answers.open == 0


def test_responses_over_which_a_worker_dies_twice_are_tried_alone() -> None:
    class Fatal(Counter):
        """Dies of the response "z"."""

        def exchange(self, split: str, responses: list[Response], wait_s: float) -> FeedbackBatch:
            if any(response.content == "z" for response in responses):
                raise WorkerDied("died", group="fake", rank=0, method="exchange")
            return super().exchange(split, responses, wait_s)

    class Fragile(Group):
        def submit_one(self, rank: int, method: str, *args: Any) -> Handle:
            try:
                return super().submit_one(rank, method, *args)
            except WorkerDied as error:
                return LocalHandle(self.name, rank, method, None, error)

    pool = TextEnvPool(Fragile(Fatal, 1, {}), EnvConfig(max_failures=1))  # type: ignore[arg-type]
    pool.reset("train", [10, 11, 12])
    responses = [Response(index, text, cut=False) for index, text in enumerate("azb")]
    found = {one.row_index: one for one in graded(pool.answers(), *responses)}
    assert [found[index].lost for index in range(3)] == [False, True, False]
    assert [found[index].facts["turn"] for index in (0, 2)] == [1.0, 1.0]
    assert (pool.errors, pool.restarts) == (1, 4)


class Doomed:
    """A worker of this process that dies at every step, as with a simulator that ends its process."""

    name, size = "env", 1

    def __init__(self, restarts: int) -> None:
        self.restarts = restarts

    def submit_one(self, rank: int, method: str, *args: Any) -> Any:
        return self

    def submit_remote(self, rank: int, method: str, *args: Any) -> Any:
        return self, self

    def result(self) -> Any:
        raise WorkerDied("env rank 0 of 1 died", group="env", rank=0, method="collect")

    def restart(self, ranks: Sequence[int], *, counted: bool = True) -> None:
        if not self.restarts:
            raise WorkerError("env rank 0 of 1 has used up its restarts", group="env", rank=0, method="restart")

    def call_one(self, rank: int, method: str, *args: Any) -> Any:
        return None if method == "skip_episodes" else self.result()


@pytest.mark.parametrize(("restarts", "words"), [(1, "died"), (0, "has used up its restarts")])
def test_an_environment_that_ends_its_worker_again_is_reported_with_a_way_out(restarts: int, words: str) -> None:
    pool = EnvPool(Doomed(restarts))  # type: ignore[arg-type]
    with pytest.raises(UserError, match=rf"(?s)rank 0 of 1 {words}.*env\.isolation: process"):
        pool.call("collect", 0)
    assert pool.restarts == restarts


class Talker(Speaker):
    """A session's worker: one response a slice; remembers for which groups it was called."""

    def __init__(self) -> None:
        self.groups: set[int | None] = set()
        self.waiting: list[Completion] = []
        self.closed = 0

    def advance(
        self, requests: Sequence[SampleRequest], aborted: Sequence[int], max_s: float, through: bool
    ) -> list[Completion]:
        self.groups |= {request.group for request in requests}
        self.waiting += [one for portion in self.stream_portions(requests) for one in portion]
        gone = [replace(one, finish_reason="abort") for one in self.waiting if one.request_id in aborted]
        self.waiting = [one for one in self.waiting if one.request_id not in aborted]
        return gone + [self.waiting.pop(0) for _ in self.waiting[:1]]

    def end_session(self) -> None:
        self.closed += 1


def talk(size: int, dies: dict[tuple[int, str], int]) -> tuple[set[Completion], Group, SamplerPool]:
    """Conversations of one to three turns; the next turn begins when the one before has come."""
    group = Group(Talker, size, dies)
    pool = connected(group)
    pool.send_weights(1)
    params, turns, received = SamplingParams(max_new_tokens=1), [1, 3, 1, 2, 2, 3], set()
    session = pool.session()
    session.submit([SampleRequest(g, (1,), 1, params, (0, g), group=g) for g in range(6)])
    while session.open:
        for one in session.poll(1.0):
            received.add(one)
            group_id, turn = one.request_id % 10, one.request_id // 10 + 1
            if turn < turns[group_id]:
                name = one.request_id + 10
                session.submit([SampleRequest(name, (1,), 1, params, (0, group_id), group=group_id)])
    session.close()
    return received, group, pool


def test_a_conversation_stays_with_its_sampler() -> None:
    one, *_ = talk(1, {})
    two, group, _ = talk(2, {})
    assert len(one) == 12
    assert one == two
    first, second = (worker.groups for worker in group.workers)
    assert first | second == set(range(6))
    assert not first & second, "a group was moved between turns"


def test_a_sampler_that_dies_in_a_session_is_sent_what_is_missing() -> None:
    received, group, pool = talk(2, {(1, "advance"): 0})
    assert received == talk(1, {})[0]
    assert group.restarted == [1]
    assert pool.redone == 3


def test_a_session_is_closed_with_what_is_open() -> None:
    group = Group(Talker, 1, {})
    session = connected(group).session()
    params = SamplingParams(max_new_tokens=1)
    session.submit([SampleRequest(name, (1,), 2, params, (0, name)) for name in (5, 6)])
    assert [one.request_id for one in session.poll(1.0)] == [5]
    session.abort([6])
    reasons = [one.finish_reason for _ in range(4) for one in session.poll(1.0)]
    assert reasons == ["stop", "stop", "abort"], "slices under way were not notified"
    # Two slices begin at once and make a response each; the third response is open.
    session.submit([SampleRequest(5, (1,), 3, params, (0, 5))])
    session.close()
    assert (session.open, group.workers[0].closed) == (0, 1)
