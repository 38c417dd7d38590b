"""Weights that several ranks of a learner give, each a part of its own at the same time, by every transport."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from held_weights import Threads
from torch import Tensor

from rlinf.base.errors import UserError
from rlinf.cluster import WorkerDied
from rlinf.cluster.weights.choice import choose
from rlinf.cluster.weights.receiver import WeightFollower
from rlinf.cluster.weights.segment import available
from rlinf.cluster.weights.sender import WeightSender
from rlinf.cluster.weights.transport import Collective, ObjectStore, SharedMemory
from rlinf.data.messages import Metrics, WeightForm, WeightUpdate

SOURCES = [0, 2, 0, 2, 2]
"""Rank 1 gives nothing."""
WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "object_store": ObjectStore,
    "shared_memory": SharedMemory,
    "collective": lambda learner, samplers: Collective(learner, samplers, device="cpu", fall_back=False, keep=True),
    "collective, then object_store": lambda learner, samplers: Collective(
        learner, samplers, device="cpu", fall_back=True
    ),
}
POSSIBLE = [way for way in WAYS if way != "shared_memory" or available()]


def numbers(version: int, part: int) -> Tensor:
    return torch.arange(1.0, 3.0 + 40 * part) * version


class Rank(WeightSender):
    """One of three; ``may_begin`` holds up what it gives first."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self.given: list[int] = []
        self.gave_two = threading.Event()
        self.may_begin = threading.Event()
        self.may_begin.set()

    def weight_sources(self, *, form: WeightForm = "merged") -> list[int]:
        return SOURCES

    def weights(self, *, version: int, part: int = 0, form: WeightForm = "merged") -> WeightUpdate:
        tensors = {}
        if SOURCES[part] == self._rank:
            assert self.may_begin.wait(20.0)
            tensors = {f"w{part}": numbers(version, part)}
            self.given.append(part)
            if len(self.given) == 2:
                self.gave_two.set()
        return WeightUpdate(version, tensors, part, len(SOURCES))


class Sampler(WeightFollower):
    """Dies over part ``dies_over``."""

    def __init__(self) -> None:
        self.held: dict[str, Tensor] = {}
        self.taken: list[int] = []
        self.dies_over: int | None = None
        self.dead = False

    def load(self, update: WeightUpdate) -> Metrics:
        if update.part == self.dies_over:
            self.dead = True
        if self.dead:
            for group in (self._groups or {}).values():
                group.close()
            raise WorkerDied("died", group="sampler", rank=1, method="load")
        self.held |= {name: tensor.clone() for name, tensor in update.tensors.items()}
        self.taken.append(update.part)
        return {"weight_update_s": 1.0, "weight_update_bytes": 8.0}

    def require(self, version: int) -> None:
        assert self.held.keys() == {f"w{part}" for part in range(len(SOURCES))}
        for part in range(len(SOURCES)):
            assert self.held[f"w{part}"].equal(numbers(version, part))


class Ungrouped(Sampler):
    def join_broadcast(self, *_: Any, **__: Any) -> str:
        return "no network"


def ranks() -> Threads:
    return Threads([Rank(rank) for rank in range(3)])


@pytest.mark.parametrize("way", POSSIBLE)
@pytest.mark.parametrize("part", range(len(SOURCES)))
def test_a_receiver_that_dies_is_restarted_once_and_all_have_the_version(way: str, part: int) -> None:
    learner, samplers = ranks(), Threads([Sampler(), Sampler()])
    transport = WAYS[way](learner, samplers)
    restarted: list[int] = []

    def restart(rank: int, error: Exception) -> None:
        restarted.append(rank)
        samplers.workers[rank] = Sampler()
        transport.send_again(rank)

    for version in (1, 2):
        figures = transport.send(version, restart)
        assert figures == {"weight_update_s": 5.0, "weight_update_bytes": 40.0}
        for sampler in samplers.workers:
            sampler.require(version)
            assert sampler.taken == [*range(len(SOURCES))] * version
    assert restarted == []
    samplers.workers[1].dies_over = part
    transport.send(3, restart)
    assert restarted == [1]
    for sampler in samplers.workers:
        sampler.require(3)
    transport.send(4, restart)
    for sampler in samplers.workers:
        sampler.require(4)
    assert {rank.given[-1] for rank in learner.workers if rank.given} == {2, 4}
    assert not learner.workers[1].given


@pytest.mark.parametrize("way", ["shared_memory", "collective"])
def test_a_source_does_not_wait_for_the_others(way: str) -> None:
    if way not in POSSIBLE:
        pytest.skip("Linux has such memory")
    learner, samplers = ranks(), Threads([Sampler(), Sampler()])
    transport = WAYS[way](learner, samplers)
    first, _, second = learner.workers
    first.may_begin.clear()
    sending = threading.Thread(target=transport.send, args=(1, lambda *_: None))
    sending.start()
    # Its first part has left, before the part that receivers take first is there.
    assert second.gave_two.wait(20.0)
    assert first.given == []
    first.may_begin.set()
    sending.join(20.0)
    for sampler in samplers.workers:
        sampler.require(1)


def test_where_no_group_can_be_formed_weights_go_through_the_object_store() -> None:
    learner, samplers = ranks(), Threads([Ungrouped(), Ungrouped()])
    transport = WAYS["collective, then object_store"](learner, samplers)
    for rank in learner.workers:
        rank.open_broadcast = lambda **_: "no network"
    transport.send(1, lambda *_: None)
    for sampler in samplers.workers:
        sampler.require(1)


def test_calls_of_the_learner_are_as_many_as_with_one_source() -> None:
    learner, samplers = ranks(), Threads([Sampler()])
    for way, wanted in (("object_store", {"held_weights": 3}), ("collective", {"broadcast_weights": 1})):
        transport = WAYS[way](learner, samplers)
        transport.send(1, lambda *_: None)
        learner.calls.clear()
        transport.send(2, lambda *_: None)
        # Three rounds, in which every rank is called once, for five parts.
        assert {name: learner.calls.count(name) // learner.size for name in set(learner.calls)} == wanted


@pytest.mark.skipif(not available(), reason="Linux has such memory")
def test_shared_memory_needs_all_sources_on_the_node_of_the_receivers(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, samplers = ranks(), Threads([Sampler()])

    def chosen(wanted: Any) -> Any:
        return choose(wanted, learner, samplers, cuda=False, keep=False)  # type: ignore[arg-type]

    assert isinstance(chosen("auto"), SharedMemory)
    monkeypatch.setattr(learner, "nodes", lambda: ["127.0.0.1", "10.0.0.9", "127.0.0.1"])
    assert isinstance(chosen("auto"), SharedMemory)
    monkeypatch.setattr(learner, "nodes", lambda: ["127.0.0.1", "127.0.0.1", "10.0.0.9"])
    assert isinstance(chosen("auto"), Collective)
    with pytest.raises(UserError, match="2 nodes"):
        chosen("shared_memory")
