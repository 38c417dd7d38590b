"""Samplers free their memory while the learner works: in the loop's order, without any effect on a CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from tiny_runs import config

from rlinf.learners.torch import TorchLearner
from rlinf.train import run
from rlinf.train.assemble.setup import Devices
from rlinf.train.workers.learner_worker import LearnerWorker
from rlinf.train.workers.sampler_worker import SamplerWorker

if TYPE_CHECKING:
    from rlinf.interfaces import Learner


def test_samplers_sleep_between_collecting_and_new_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def watched(owner: type, name: str) -> None:
        method = getattr(owner, name)

        def call(self: Any, *args: Any, **options: Any) -> Any:
            calls.append(name)
            return method(self, *args, **options)

        monkeypatch.setattr(owner, name, call)

    for name in ("stream_portions", "sleep", "wake", "load"):
        watched(SamplerWorker, name)
    watched(TorchLearner, "update")
    small = {"sft": {"steps": 0}, "evaluation": {"size": 0, "env_kwargs": None}, "run": {"max_steps": 2}}
    slept = run(config(tmp_path / "slept", rollout={"sleep": "always"}, **small))
    step = ["stream_portions", "sleep", "update", "wake", "load"]
    assert calls == ["load", *step, *step]
    calls.clear()
    awake = run(config(tmp_path / "awake", **small))
    assert "sleep" not in calls
    times = ("time/", "speed/", "weights/weight_update_s")
    left, right = ({k: v for k, v in one.metrics.items() if not k.startswith(times)} for one in (slept, awake))
    assert left == pytest.approx(right, nan_ok=True)


@pytest.mark.parametrize(
    ("sleep", "placement", "gpus", "ahead", "expected"),
    [
        ("auto", "colocated", 0.5, 0, True),
        ("auto", "separate", 1.0, 0, False),
        ("auto", "colocated", 0.0, 0, False),
        ("auto", "colocated", 0.5, 1, False),
        ("never", "colocated", 0.5, 0, False),
        ("always", "separate", 1.0, 0, True),
    ],
)
def test_auto_is_where_a_gpu_is_shared(
    tmp_path: Path, sleep: str, placement: str, gpus: float, ahead: int, expected: bool
) -> None:
    given = config(tmp_path)
    cluster = replace(given.cluster, placement=placement, gpus_per_learner=gpus, gpus_per_sampler=gpus)  # type: ignore[arg-type]
    rollout = replace(given.rollout, sleep=sleep, staleness=ahead)  # type: ignore[arg-type]
    wanted = replace(given, cluster=cluster, rollout=rollout)
    assert Devices.of(wanted).samplers_sleep(wanted) is expected


class Sleeper:
    """A learner that counts how often it is woken."""

    woken = 0

    def sleep(self, *, keep_weights: bool) -> dict[str, float]:
        return {}

    def wake(self) -> None:
        self.woken += 1

    def update(self, batch: Any, *, step: int) -> dict[str, float]:
        return {"step": float(step)}


def test_reading_an_attribute_of_a_sleeping_learner_does_not_wake_it() -> None:
    """Closing a group reads `close` of its workers; a debugger reads anything. Only a call is work."""
    learner = Sleeper()
    worker = LearnerWorker(cast("Learner", learner), rank=0)
    worker.sleep(keep_weights=False)
    assert not hasattr(worker, "close")
    assert hasattr(worker, "update")
    assert learner.woken == 0
    batch: Any = SimpleNamespace()
    assert worker.update(batch, step=3) == {"step": 3.0}
    assert worker.update(batch, step=4) == {"step": 4.0}
    assert learner.woken == 1
