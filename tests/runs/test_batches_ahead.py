"""Whole batches ahead of the learner: each as many versions old, the same numbers everywhere, nothing lost."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import simulator_runs
import tiny_runs

from rlinf.train import run
from rlinf.train.loop import Trainer
from rlinf.train.prefetch import BatchPrefetcher

# The estimator samples greedy responses as well, so batches are collected as a whole.
AHEAD = {"rollout": {"staleness": 1}, "algorithm": {"adv_type": "remax", "loss_type": "decoupled"}}


def _settings(folder: Path, **sections: Any) -> Any:
    return tiny_runs.config(folder, **{**AHEAD, **sections})


def _steps(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def _hash(folder: Path) -> str:
    return str(json.loads((folder / "summary.json").read_text())["params_sha256"])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ahead") / "run"
    run(_settings(folder), report=False)
    return folder


def test_every_batch_but_the_first_is_one_version_old(finished: Path) -> None:
    ages = [line["rollout/staleness"] for line in _steps(finished) if "rollout/staleness" in line]
    assert ages == [0.0, 1.0, 1.0, 1.0]


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_ray_overlaps_and_gives_what_one_process_gives(finished: Path, tmp_path: Path) -> None:
    run(_settings(tmp_path / "ray", cluster={"backend": "ray"}), report=False)
    assert _hash(tmp_path / "ray") == _hash(finished)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_simulators_run_ahead_too_and_give_the_same_in_one_process(tmp_path: Path) -> None:
    ahead = ["rollout.ahead=1", "algorithm.loss_type=decoupled"]  # another name of rollout.staleness
    ray = simulator_runs.summary(tmp_path / "ray", "grpo", 3, [*ahead, "cluster.backend=ray"])
    local = simulator_runs.summary(tmp_path / "local", "grpo", 3, ahead)
    assert local["params_sha256"] == ray["params_sha256"]
    assert local["params_sha256"] != simulator_runs.summary(tmp_path / "on", "grpo", 3)["params_sha256"]
    assert [line.get("rollout/staleness") for line in _steps(tmp_path / "local")] == [None, 0.0, 1.0, 1.0]


@pytest.mark.slow
def test_an_environment_that_hangs_is_broken_off_in_one_process(tmp_path: Path) -> None:
    hanging = ["env.kwargs={hang_every: 100}", "rollout.staleness=1"]
    simulator_runs.summary(tmp_path / "run", "ppo_faulty", 3, hanging)
    assert _steps(tmp_path / "run")[-1]["env/timeouts"] > 0


def test_a_run_that_breaks_off_ends_with_the_same_parameters(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Trainer.update

    def breaking(trainer: Trainer, batch: Any, step: int) -> Any:
        if step == 2:
            raise KeyboardInterrupt
        return whole(trainer, batch, step)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", breaking)
        with pytest.raises(KeyboardInterrupt):
            run(_settings(tmp_path / "run"), report=False)
    run(_settings(tmp_path / "run"), report=False)
    assert _hash(tmp_path / "run") == _hash(finished)


def test_it_is_not_the_on_policy_run(finished: Path, tmp_path: Path) -> None:
    run(_settings(tmp_path / "run", rollout={"staleness": 0}), report=False)
    assert _hash(tmp_path / "run") != _hash(finished)


def test_the_next_batch_is_made_while_the_learner_works() -> None:
    learning = threading.Event()

    def collect(step: int) -> Any:
        if step > 0:
            assert learning.wait(timeout=10)
        return f"batch {step}", {}

    batches = BatchPrefetcher(collect, staleness=1, last=5, concurrent=True)
    assert batches.ready(0) is None
    batches.begin(1)
    learning.set()
    waited = batches.settle()
    assert waited["time/learner_idle_s"] >= 0
    assert waited["time/samplers_idle_s"] >= 0
    assert batches.ready(1) == ("batch 1", {})


def test_samplers_go_on_before_the_waiting_batch_is_taken() -> None:
    collected: list[int] = []

    def collect(step: int) -> Any:
        collected.append(step)
        return step, {}

    batches = BatchPrefetcher(collect, staleness=1, last=5, concurrent=True)
    batches.go_on(0)  # nothing waits: the loop collects the first batch itself
    batches.begin(1)
    batches.settle()
    assert collected == [1]
    batches.go_on(1)
    assert batches.ready(1) == (1, {})
    batches.begin(2)
    batches.settle()
    assert collected == [1, 2]


def test_what_collecting_raises_is_raised_where_it_is_waited_for() -> None:
    def collect(step: int) -> Any:
        raise OSError(f"no simulator at step {step}")

    batches = BatchPrefetcher(collect, staleness=1, last=5, concurrent=True)
    batches.begin(3)
    with pytest.raises(OSError, match="no simulator at step 3"):
        batches.settle()
    assert batches.settle() == {}


def test_a_batch_of_another_step_is_refused() -> None:
    collect: Any = lambda step: (step, {})  # noqa: E731
    batches = BatchPrefetcher(collect, staleness=1, last=5, concurrent=False)
    batches.begin(1)
    batches.settle()
    with pytest.raises(RuntimeError, match="is of step 1, not 2"):
        batches.ready(2)


def test_batches_are_as_old_as_configured_and_none_is_lost() -> None:
    version = 0
    collect: Any = lambda step: ((step, version), {})  # noqa: E731
    batches = BatchPrefetcher(collect, staleness=3, last=6, concurrent=False)
    made = []
    for step in range(7):
        made.append((batches.ready(step) or collect(step))[0])
        if step < 6:
            batches.begin(step + 1)
        if step == 3:  # a checkpoint, and another session
            state = batches.state_dict()
            batches = BatchPrefetcher(collect, staleness=3, last=6, concurrent=False)
            batches.load_state_dict(state)
        batches.settle()
        version += 1
    assert made == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 1), (5, 2), (6, 3)]
