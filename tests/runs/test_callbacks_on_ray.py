"""Callbacks run in the driver, between the iterations of workers elsewhere: the numbers are those of one process."""

from __future__ import annotations

from pathlib import Path

import pytest
import simulator_runs
from run_callbacks import Halve, StopAt, Watch

import rlinf
from rlinf.config import load
from rlinf.train.run import RunResult

NUMBERS = ("train/loss", "train/lr", "own/double_loss", "eval/return")


def trained(folder: Path, backend: str) -> tuple[RunResult, list[str]]:
    watch = Watch()
    overrides = [*simulator_runs.overrides(folder, 3), f"cluster.backend={backend}"]
    result = rlinf.fit(load(simulator_runs.recipe(folder, "ppo"), overrides), callbacks=[watch, Halve(), StopAt(2)])
    return result, watch.calls


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_callbacks_do_the_same_on_ray(tmp_path: Path) -> None:
    on_ray, calls = trained(tmp_path / "ray", "ray")
    here, _ = trained(tmp_path / "here", "local")
    assert calls == ["start after 0", "step 1", "step 2", "end"]
    assert on_ray.stopped == here.stopped == "enough"
    assert [line["step"] for line in on_ray.history] == [0, 1, 2]
    for left, right in zip(on_ray.history, here.history, strict=True):
        assert {name: left.get(name) for name in NUMBERS} == {name: right.get(name) for name in NUMBERS}
