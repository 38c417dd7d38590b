"""Machines that Ray imitates: where each group's ranks would run, and what does not fit."""

from __future__ import annotations

import pytest

from rlinf.base.errors import UserError
from rlinf.cluster import GroupSize, PlacementError, Resources
from rlinf.cluster.imitated_machines import Machines, described, divided, placed, spans


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2x8", Machines(2, 8, 96)), ("1x0", Machines(1, 0, 32)), (" 4x1x6 ", Machines(4, 1, 6))],
)
def test_machines_are_read(text: str, expected: Machines) -> None:
    assert Machines.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("8", "write MACHINESxGPUS"),
        ("2x8x", "write MACHINESxGPUS"),
        ("2 x 8", "write MACHINESxGPUS"),
        ("0x8", "1 to 32 machines"),
        ("33x8", "1 to 32 machines"),
        ("2x8x0", "at least one core"),
    ],
)
def test_another_form_is_refused_with_an_example(text: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        Machines.parse(text)


def test_ranks_that_lie_on_several_machines_are_found() -> None:
    assert divided([0, 0, 0, 1, 1, 1], 2) == [[2, 3]]
    assert divided([0, 0, 1, 1], 2) == []
    assert divided([0, 0, 0, 0, 1, 1, 1, 1], 8) == [list(range(8))]


def test_a_machine_without_workers_is_left_out() -> None:
    assert described({"learner": [2, 2]}, Machines(3, 2, 8)) == ["machine 3  learner 0-1"]
    assert spans([]) == ""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_groups_are_seated_as_in_a_run() -> None:
    shared = Resources(cpus=0.5, gpus=0.5, bundle="policy")
    groups = {
        "env": GroupSize(2, Resources(cpus=0.5, spread=True)),
        "learner": GroupSize(4, shared),
        "sampler": GroupSize(4, shared),
    }
    seats = placed(groups, Machines(2, 3, 4))
    assert sorted(seats["env"]) == [0, 1]
    assert sorted(map(seats["learner"].count, (0, 1))) == [1, 3]
    assert seats["sampler"] == seats["learner"]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_what_does_not_fit_is_named_with_its_arithmetic() -> None:
    with pytest.raises(PlacementError, match=r"learner: a rank needs 0.5 CPU \+ 4 GPU on one node, and the largest"):
        placed({"learner": GroupSize(1, Resources(gpus=4))}, Machines(1, 2, 4))
