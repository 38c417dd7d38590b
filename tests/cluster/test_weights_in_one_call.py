"""Weights in several parts take one call at either end, whichever way they go; parts travel while others are taken."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from held_weights import Threads
from torch import Tensor

from rlinf.cluster import WorkerDied
from rlinf.cluster.weights.receiver import WeightFollower
from rlinf.cluster.weights.segment import available
from rlinf.cluster.weights.sender import WeightSender
from rlinf.cluster.weights.transport import Collective, SharedMemory
from rlinf.data.messages import Metrics, WeightForm, WeightUpdate

PARTS = 5


class Learner(WeightSender):
    """Five parts of different sizes, other numbers for each version."""

    def __init__(self) -> None:
        super().__init__(0)
        self.taken: list[int] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def weight_sources(self, *, form: WeightForm = "merged") -> list[int]:
        return [0] * PARTS

    def weights(self, *, version: int, part: int = 0, form: WeightForm = "merged") -> WeightUpdate:
        if part == 1:
            assert self.may_go_on.wait(20.0)
        self.taken.append(part)
        return WeightUpdate(version, {f"w{part}": torch.arange(1.0, 3.0 + 40 * part) * version}, part, PARTS)


class Sampler(WeightFollower):
    def __init__(self) -> None:
        self.held: dict[str, Tensor] = {}
        self.first_part = threading.Event()

    def load(self, update: WeightUpdate) -> Metrics:
        self.held |= {name: tensor.clone() for name, tensor in update.tensors.items()}
        self.first_part.set()
        return {"weight_update_s": 1.0, "weight_update_bytes": 8.0}

    def require(self, version: int) -> None:
        for part in range(PARTS):
            assert self.held[f"w{part}"].equal(torch.arange(1.0, 3.0 + 40 * part) * version)


def test_a_broadcast_of_all_parts() -> None:
    learner, samplers = Learner(), [Sampler(), Sampler()]
    port = learner.host_broadcast(timeout_s=20.0)
    assert port is not None
    with ThreadPoolExecutor(3) as threads:
        joins = [
            threads.submit(
                sampler.join_broadcast, {0: ("127.0.0.1", port)}, rank=rank + 1, size=3, device="cpu", timeout_s=20.0
            )
            for rank, sampler in enumerate(samplers)
        ]
        assert learner.open_broadcast(size=3, device="cpu", timeout_s=20.0) is None
        assert [join.result() for join in joins] == [None, None]
        for version in (1, 2):
            takes = [threads.submit(sampler.receive_weights, [0] * PARTS) for sampler in samplers]
            assert learner.broadcast_weights(version=version, keep=True) is None
            assert [take.result() for take in takes] == [{"weight_update_s": 5.0, "weight_update_bytes": 40.0}] * 2
            for sampler in samplers:
                sampler.require(version)
    assert learner.taken == [*range(PARTS)] * 2
    assert learner.sent_weights(version=2, parts=[1])[1].tensors["w1"].equal(torch.arange(1.0, 43.0) * 2)


def test_a_receiver_that_is_gone_is_reported_and_no_rank_stops_gathering() -> None:
    learner, sampler = Learner(), Sampler()
    port = learner.host_broadcast(timeout_s=5.0)
    assert port is not None
    with ThreadPoolExecutor(1) as threads:
        meetings = {0: ("127.0.0.1", port)}
        join = threads.submit(sampler.join_broadcast, meetings, rank=1, size=2, device="cpu", timeout_s=5.0)
        assert learner.open_broadcast(size=2, device="cpu", timeout_s=5.0) is None
        assert join.result() is None
    assert sampler._groups is not None
    sampler._groups[0].close()
    problem = learner.broadcast_weights(version=1, keep=False)
    assert problem is not None
    assert "broke off" in problem
    assert learner.taken == [*range(PARTS)]


@pytest.mark.skipif(not available(), reason="Linux has such memory")
def test_parts_are_read_as_they_are_written_and_stay() -> None:
    learner, samplers = Learner(), [Sampler(), Sampler()]
    port = learner.host_addresses(timeout_s=20.0)
    assert port is not None
    learner.may_go_on.clear()
    with ThreadPoolExecutor(3) as threads:
        loads = [threads.submit(sampler.load_segments, port, 1, timeout_s=20.0) for sampler in samplers]
        options: dict[str, Any] = {"port": port, "timeout_s": 20.0}
        writes = threads.submit(learner.write_weights, version=7, sending=1, replaced=0, **options)
        # The first part is loaded before the second one is there.
        assert all(sampler.first_part.wait(20.0) for sampler in samplers)
        learner.may_go_on.set()
        writes.result()
        assert [load.result() for load in loads] == [{"weight_update_s": 5.0, "weight_update_bytes": 40.0}] * 2
        for sampler in samplers:
            sampler.require(7)
        learner.write_weights(version=8, sending=2, replaced=1, **options)
        late = Sampler()
        for _ in range(2):
            late.load_segments(port, 2, timeout_s=20.0)
            late.require(8)


class Mortal(Sampler):
    """Dies over the third part of an update, if it is to."""

    doomed = False

    def load(self, update: WeightUpdate) -> Metrics:
        if self.doomed and update.part == 2:
            for group in (self._groups or {}).values():
                group.close()
            raise WorkerDied("died", group="sampler", rank=1, method="load")
        return super().load(update)


def ways(learner: Any, samplers: Any) -> list[Any]:
    collective = Collective(learner, samplers, device="cpu", fall_back=False, keep=True)
    return [collective, SharedMemory(learner, samplers)] if available() else [collective]


@pytest.mark.parametrize("way", range(2 if available() else 1))
def test_one_call_at_either_end_and_a_death_on_the_way(way: int) -> None:
    learner, samplers = Threads([Learner()]), Threads([Sampler(), Mortal()])
    transport = ways(learner, samplers)[way]

    def restart(rank: int, error: Exception) -> None:
        samplers.workers[rank] = Mortal()
        transport.send_again(rank)

    for version in (1, 2):
        samplers.calls.clear()
        learner.calls.clear()
        figures = transport.send(version, restart)
        assert figures == {"weight_update_s": 5.0, "weight_update_bytes": 40.0}
        for sampler in samplers.workers:
            sampler.require(version)
    assert samplers.calls == [["receive_weights"] * 2, ["load_segments"] * 2][way]
    assert learner.calls == [["broadcast_weights"], ["write_weights"]][way]
    samplers.workers[1].doomed = True
    transport.send(3, restart)
    for sampler in samplers.workers:
        sampler.require(3)
    assert not samplers.workers[1].doomed
