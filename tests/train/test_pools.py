"""A worker that dies is started anew, its part is redone, and what comes back is complete and in order."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from rlinf.cluster import WorkerDied
from rlinf.train.pools import SamplerPool, TextEnvPool, shares
from rlinf.types import Completion, SampleRequest, SamplingParams, WeightUpdate


class Done:
    def __init__(self, group: "Group", rank: int, method: str, args: tuple[Any, ...]) -> None:
        self.group, self.rank, self.method, self.args = group, rank, method, args

    def result(self, timeout: float | None = None) -> Any:
        return self.group.call_one(self.rank, self.method, *self.args)


class Group:
    """Workers of this process; ``dies`` names (rank, method) of calls that end a worker, each once."""

    name = "fake"

    def __init__(self, make: Any, size: int, dies: set[tuple[int, str]]) -> None:
        self.make, self.size, self.dies = make, size, dies
        self.workers = [make() for _ in range(size)]
        self.restarted: list[int] = []

    def call_one(self, rank: int, method: str, *args: Any) -> Any:
        if (rank, method) in self.dies:
            self.dies.remove((rank, method))
            raise WorkerDied("died", group=self.name, rank=rank, method=method)
        return getattr(self.workers[rank], method)(*args)

    def call(self, method: str, *args: Any) -> list[Any]:
        return [self.call_one(rank, method, *args) for rank in range(self.size)]

    def submit_one(self, rank: int, method: str, *args: Any) -> Done:
        return Done(self, rank, method, args)

    def restart(self, rank: int) -> None:
        self.workers[rank] = self.make()
        self.restarted.append(rank)


class SharedAsIs:
    def share(self, value: Any) -> Any:
        return value


class Speaker:
    """Answers with the version of its weights."""

    version = -1

    def load(self, update: WeightUpdate) -> dict[str, float]:
        self.version = update.version
        return {"weight_update_s": 0.0}

    def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        return [
            Completion(request.request_id, sample, (request.request_id,), (0.0,), "stop", (self.version,))
            for request in requests
            for sample in range(request.n)
        ]


class Counter:
    """Conversations that count their turns: a replay must bring them back to the same count."""

    def reset(self, side: str, task_ids: list[int]) -> tuple[tuple[str, ...], dict[str, Any]]:
        self.turns = [0] * len(task_ids)
        self.tasks = task_ids
        return tuple(map(str, task_ids)), {"task_id": np.array(task_ids)}

    def step(self, side: str, actions: list[str]) -> tuple[Any, ...]:
        self.turns = [turn + 1 for turn in self.turns]
        none = np.zeros(len(actions), dtype=bool)
        said = tuple(f"{task}:{turn}" for task, turn in zip(self.tasks, self.turns, strict=True))
        return said, np.array(self.turns, dtype=np.float32), none, none, {"turn": np.array(self.turns)}


@pytest.mark.parametrize(("count", "parts", "unit"), [(12, 3, 4), (7, 2, 1), (8, 3, 4), (2, 4, 1)])
def test_shares_are_whole_units_and_complete(count: int, parts: int, unit: int) -> None:
    pieces = shares(count, parts, unit=unit)
    assert [row for piece in pieces for row in range(count)[piece]] == list(range(count))
    assert len(pieces) == parts
    assert all(len(range(count)[piece]) % unit == 0 for piece in pieces)


def test_a_sampler_that_dies_gets_the_current_weights_and_its_part_is_redone() -> None:
    group = Group(Speaker, 2, {(1, "sample")})
    pool = SamplerPool(group, SharedAsIs())  # type: ignore[arg-type]
    pool.load(WeightUpdate(7, {"w": torch.zeros(1)}))
    params = SamplingParams(max_new_tokens=1)
    requests = [SampleRequest(i, (1,), 2, params, (0, i)) for i in range(5)]
    done = pool.sample(requests)
    assert [(c.request_id, c.sample_index) for c in done] == [(i, j) for i in range(5) for j in range(2)]
    assert {c.policy_version for c in done} == {(7,)}
    assert group.restarted == [1]
    assert pool.restarts == 1


def test_an_env_worker_that_dies_is_brought_back_to_where_its_conversations_were() -> None:
    group = Group(Counter, 2, set())
    pool = TextEnvPool(group)  # type: ignore[arg-type]
    observations, infos = pool.reset("train", [10, 11, 12])
    assert observations == ["10", "11", "12"]
    assert list(infos["task_id"]) == [10, 11, 12]
    pool.step("train", ["a"] * 3)
    group.dies.add((0, "step"))
    said, rewards, *_ = pool.step("train", ["b"] * 3)
    assert said == ["10:2", "11:2", "12:2"]
    assert rewards.tolist() == [2.0, 2.0, 2.0]
    assert pool.restarts == 1
