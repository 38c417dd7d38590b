"""A pool brings a lost worker to where it was, within its budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rlinf.base.errors import UserError
from rlinf.cluster import WorkerDied, WorkerError
from rlinf.cluster.local import LocalHandle
from rlinf.cluster.pool import ResilientPool


def died(rank: int, method: str) -> WorkerDied:
    return WorkerDied(f"rank {rank} died in {method}", group="fake", rank=rank, method=method)


class Group:
    """Two workers that double numbers; rank 1 is lost in the calls whose numbers ``loses`` has, from 0."""

    name, size = "fake", 2

    def __init__(self, loses: set[int], budget: int) -> None:
        self.loses, self.budget, self.calls = loses, budget, 0
        self.uncounted = 0
        self.restarted: list[list[int]] = []

    def submit_one(self, rank: int, method: str, value: int) -> LocalHandle:
        lost = rank == 1 and self.calls in self.loses
        self.calls += rank
        return LocalHandle(self.name, rank, method, 2 * value, died(rank, method) if lost else None)

    def call_one(self, rank: int, method: str, value: int) -> Any:
        return self.submit_one(rank, method, value).result()

    def restart(self, ranks: Sequence[int], *, counted: bool = True) -> None:
        for rank in ranks:
            self.uncounted += not counted
            if counted and not self.budget:
                raise WorkerError("no restart is left", group=self.name, rank=rank, method="restart")
            self.budget -= counted
        self.restarted.append(list(ranks))


class Pool(ResilientPool):
    """Calls its worker once to recover it."""

    def recover(self, rank: int) -> Any:
        return self.group.submit_one(rank, "recover", 21).result()


class AdvisingPool(Pool):
    advice = "Use fewer."


@pytest.mark.parametrize(("loses", "restarts"), [(set(), 0), ({0}, 1), ({0, 1}, 2), ({0, 1, 2}, 3)])
def test_a_lost_call_is_made_again_also_where_the_recovery_is_lost(loses: set[int], restarts: int) -> None:
    pool = Pool(Group(loses, budget=3))  # type: ignore[arg-type]
    assert pool.call("double", per_rank=[(1,), (2,)]) == [2, 4]
    assert pool.restarts == restarts
    assert pool.lives == [0, restarts]


@pytest.mark.parametrize(("loses", "restarts"), [(set(), 0), ({0}, 1), ({0, 1}, 2)])
def test_a_lost_call_of_one_rank_is_made_again_too(loses: set[int], restarts: int) -> None:
    pool = Pool(Group(loses, budget=2))  # type: ignore[arg-type]
    assert pool.call_one(1, "double", 2) == 4
    assert pool.restarts == restarts
    with pytest.raises(UserError, match="Use fewer"):
        AdvisingPool(Group({0}, budget=0)).call_one(1, "double", 2)  # type: ignore[arg-type]


def test_the_budget_ends_it_and_advice_makes_it_a_users_error() -> None:
    with pytest.raises(WorkerError, match="no restart is left"):
        Pool(Group({0, 1}, budget=1)).call("double", 1)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="no restart is left\nUse fewer"):
        AdvisingPool(Group({0, 1}, budget=1)).call("double", 1)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="rank 1 died in double\nUse fewer"):
        AdvisingPool(Group({0, 2}, budget=9)).call("double", 1)  # type: ignore[arg-type]


def test_only_the_first_restart_can_be_free_of_charge() -> None:
    group = Group({0}, budget=1)
    assert Pool(group).restart(1, died(1, "step"), counted=False) == 42  # type: ignore[arg-type]
    assert (group.uncounted, group.budget) == (1, 0)


class Many(Group):
    """Six workers; some are lost in the first call, and rank 4 is still busy when that is found out."""

    size = 6

    def submit_one(self, rank: int, method: str, value: int) -> LocalHandle:
        lost = not self.restarted and rank in self.loses
        handle = LocalHandle(self.name, rank, method, 2 * value, died(rank, method) if lost else None)
        if rank == 4:
            handle.done = lambda: False  # type: ignore[method-assign]
        return handle


def test_workers_that_are_lost_together_come_back_together() -> None:
    group = Many({1, 3, 5}, budget=3)
    assert Pool(group).call("double", 4) == [8] * 6  # type: ignore[arg-type]
    assert group.restarted == [[1, 3, 5]]
