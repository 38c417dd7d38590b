"""Deaths at long intervals do not add up; deaths in a row do."""

from __future__ import annotations

from rlinf.cluster.restart_budget import RestartBudget


def test_old_restarts_are_forgotten_one_by_one() -> None:
    now = 0.0
    budget = RestartBudget(2, 100.0, clock=lambda: now)
    found = []
    for now in (0.0, 60.0, 90.0, 101.0, 130.0, 161.0):  # noqa: B007
        found.append(budget.spend(3))
    assert found == [True, True, False, True, False, True]


def test_no_restart_at_all() -> None:
    assert not RestartBudget(0, 3600.0).spend(0)
