"""A trial as Tune drives it, with a stand-in for its process; and that process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from sweep_files import load_sweep, write_sweep_file

pytest.importorskip("ray.tune")

from rlinf.config import ConfigErrors, to_yaml
from rlinf.sweep import engine, trainable
from rlinf.sweep.load import Sweep
from rlinf.sweep.process import ObjectiveTail, RunProcess, TrialFailed
from rlinf.sweep.records import TrialRecord, open_sweep, read_sweep
from rlinf.sweep.settings import TrialPlan, plan_trials
from rlinf.sweep.validate import trial_config
from rlinf.train.evaluation.missing_metric import missing_metric

STATE = {"stage": "train", "stage_step": 3, "wall_s": 0.0, "initial": {}, "evaluation": {}, "best": None}


class StandIn:
    """A process that has trained as soon as it is started."""

    starts = 0
    fails = False

    def __init__(self, folder: Path, config: Any, *, threads: int, hold_every: int) -> None:
        StandIn.starts += 1
        run = folder / "run"
        run.mkdir(exist_ok=True)
        (run / "config.yaml").write_text(to_yaml(config))
        known = {"eval/accuracy": 0.5, "eval/accuracy/ci_low": 0.4}
        lines = [{"step": step, "rollout/response_length": float(-((step - 2) ** 2)), **known} for step in range(4)]
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (run / "checkpoints" / "step_000003").mkdir(parents=True, exist_ok=True)
        (run / "checkpoints" / "step_000003" / "weights").write_text(folder.name)
        (run / "checkpoints" / "step_000003" / "state.json").write_text(json.dumps({**STATE, "step": 3, "files": {}}))
        if not StandIn.fails:
            (run / "summary.json").write_text(json.dumps({"steps": config.run.max_steps}))

    def ended(self) -> bool:
        if StandIn.fails:
            raise TrialFailed("Traceback: it fell over")
        return True

    def stop(self) -> None:
        pass


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    monkeypatch.setattr(trainable, "RunProcess", StandIn)
    monkeypatch.setattr(StandIn, "fails", False)
    monkeypatch.setattr(StandIn, "starts", 0)
    found = load_sweep(write_sweep_file(tmp_path, "space: {algorithm.group_size: {grid: [2, 4]}}"))
    open_sweep(found)
    return found


def start(sweep: Sweep, number: int) -> trainable.Trial:
    plan = plan_trials(sweep)[number]

    class Bound(trainable.Trial):
        def setup(self, config: dict[str, Any], _sweep: Sweep | None = None) -> None:
            super().setup(config, sweep)

    given = {"number": plan.number, "setting": plan.setting, "seed": plan.seed, "folder": plan.folder_name}
    return Bound({"trial": given})


def test_a_trial_reports_its_last_and_best_value_and_ends(sweep: Sweep) -> None:
    output = start(sweep, 0).step()
    assert (output["objective"], output["best"], output["step"], output["done"]) == (-1.0, 0.0, 3, True)
    assert [trial.status for trial in read_sweep(sweep.folder).trials] == ["finished"]


def test_the_cpu_seconds_of_the_trial_s_process_are_recorded(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(_: StandIn) -> bool:
        burn = "import time; t = time.process_time()\nwhile time.process_time() - t < 0.2: pass"
        subprocess.run([sys.executable, "-c", burn], check=True)
        return True

    monkeypatch.setattr(StandIn, "ended", ended)
    start(sweep, 0).step()
    (trial,) = read_sweep(sweep.folder).trials
    assert 0.2 <= trial.cpu_s < 5.0


def test_all_settings_run_with_a_seed_before_any_with_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "space: {algorithm.group_size: {grid: [2, 4]}}\nseeds: [1, 0]"
    sweep = load_sweep(write_sweep_file(tmp_path, text))
    open_sweep(sweep)
    begun: list[tuple[int, int]] = []

    def fit(_: Sweep, waiting: list[TrialPlan], view: object) -> None:
        begun.extend((plan.seed, plan.setting["algorithm.group_size"]) for plan in waiting)

    monkeypatch.setattr(engine, "_fit", fit)
    engine.run_trials(sweep, plan_trials(sweep))
    assert begun == [(1, 2), (1, 4), (0, 2), (0, 4)]


def test_a_finished_trial_is_not_run_again(sweep: Sweep) -> None:
    start(sweep, 0).step()
    assert start(sweep, 0).step()["done"]
    assert StandIn.starts == 1


def test_a_failure_is_recorded_with_its_traceback_and_mended_by_the_next_attempt(sweep: Sweep) -> None:
    StandIn.fails = True
    with pytest.raises(TrialFailed):
        start(sweep, 0).step()
    record = read_sweep(sweep.folder).trials[0]
    assert (record.status, record.failures, record.error) == ("failed", 1, "Traceback: it fell over")
    StandIn.fails = False
    start(sweep, 0).step()
    record = read_sweep(sweep.folder).trials[0]
    assert (record.status, record.failures, record.error) == ("finished", 1, None)


def test_a_metric_that_no_evaluation_has_is_reported_at_once(sweep: Sweep) -> None:
    misspelt = replace(sweep, config=replace(sweep.config, metric="eval/acuracy"))
    with pytest.raises(TrialFailed, match=r"no metric of this run's evaluations: eval/accuracy$"):
        start(misspelt, 0).step()


def test_a_sweep_by_a_success_that_no_environment_tells_is_reported_why() -> None:
    numbers = {"step": 0, "eval/return": 20.0, "eval/return/n": 4.0, "eval/failures": 0.0}
    output = missing_metric("eval/success_once", numbers, "is_success")
    assert output is not None
    assert "tells no success: no step's info has the key 'is_success' (env.success_key)" in output
    assert missing_metric("eval/success_once", {**numbers, "eval/success_once": 0.0}, "is_success") is None


def test_a_trial_goes_on_from_another_ones_checkpoint(sweep: Sweep, tmp_path: Path) -> None:
    donor, taker = start(sweep, 0), start(sweep, 1)
    donor.step()
    saved, step = tmp_path / "saved", Path("checkpoints") / "step_000003"
    saved.mkdir()
    (donor.record.run_dir / step / ".metadata").write_text("of a sharded checkpoint")
    donor.save_checkpoint(str(saved))
    (saved / ".tune_metadata").write_text("of Tune")
    taker.load_checkpoint(str(saved))
    weights = taker.record.run_dir / step / "weights"
    assert weights.read_text() == donor.record.folder.name
    assert (taker.record.run_dir / step / ".metadata").read_text() == "of a sharded checkpoint"
    assert not (taker.record.run_dir / ".tune_metadata").exists()
    assert not (taker.record.run_dir / "config.yaml").exists()
    taken = {"from": donor.record.folder.name, "step": 3, "setting": taker.record.setting}
    assert TrialRecord.read(taker.record.folder).lineage == [taken]
    weights.write_text("trained further")
    taker.load_checkpoint(str(saved))  # as after a kill: what it took over once is not taken again
    assert weights.read_text() == "trained further"
    assert TrialRecord.read(taker.record.folder).lineage == [taken]


@pytest.mark.parametrize(("steps", "holds"), [(6, True), (3, False)])
def test_a_run_holds_at_every_boundary_but_its_end(sweep: Sweep, steps: int, holds: bool) -> None:
    """A trial that copied another one at its last step would count with a setting that it never trained with."""
    trial = start(sweep, 0)
    StandIn(trial.record.folder, trial.run_config, threads=1, hold_every=3)
    trial.hold_every = 3
    trial.run_config = replace(trial.run_config, run=replace(trial.run_config.run, max_steps=steps))
    trial.values.read()
    assert trial.values.steps == 3
    assert trial._holds() is holds


def test_metrics_are_read_once_and_only_when_written_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = ObjectiveTail(path, "eval/accuracy", "max", "success")
    assert not tail.read()
    path.write_text('{"step": 0, "eval/accuracy": 0.5}\n{"step": 1')
    assert tail.read()
    assert (tail.steps, tail.value) == (0, 0.5)
    assert not tail.read()
    path.write_text('{"step": 0, "eval/accuracy": 0.5}\n{"step": 1, "eval/accuracy": 0.25}\n')
    assert tail.read()
    assert (tail.steps, tail.value, tail.best) == (1, 0.25, 0.5)


def test_another_sweep_in_the_same_directory_is_refused(sweep: Sweep, tmp_path: Path) -> None:
    other = load_sweep(write_sweep_file(tmp_path, "space: {algorithm.group_size: {grid: [2, 8]}}"))
    with pytest.raises(ConfigErrors, match="holds another sweep: space changed"):
        open_sweep(other)
    open_sweep(load_sweep(write_sweep_file(tmp_path, "space: {algorithm.group_size: {grid: [2, 4]}}\nretries: 3")))


def test_a_sweep_whose_base_changed_is_another_one(tmp_path: Path) -> None:
    """The trials that finished had the settings of before; the others would have the new ones."""
    file = write_sweep_file(tmp_path, "space: {algorithm.group_size: {grid: [2, 4]}}")
    open_sweep(load_sweep(file))
    base = tmp_path / "base.yaml"
    before = yaml.safe_load(base.read_text())
    base.write_text(yaml.safe_dump({**before, "logging": {"tensorboard": True}}))
    open_sweep(load_sweep(file))
    base.write_text(yaml.safe_dump({**before, "rollout": {**before["rollout"], "temperature": 0.5}}))
    with pytest.raises(ConfigErrors, match=r"holds another sweep: base: rollout\.temperature changed"):
        open_sweep(load_sweep(file))


@pytest.mark.parametrize(
    ("space", "goes_on"),
    [
        ("learner.optimizer.lr: {grid: [0.1, 0.2]}", True),
        ("learner.optimizer.lr: {loguniform: [0.1, 0.2]}", True),
        ("rollout.temperature: {grid: [0.1, 1.0]}, learner.optimizer.lr: {like: rollout.temperature}", True),
        ("'rollout.temperature, learner.optimizer.lr': {grid: [[0.1, 0.1], [1.0, 0.2]]}", True),
        ("rate: {variants: {a: {learner.optimizer.lr: 0.1}, b: {learner.optimizer.lr: 0.2}}}", True),
        ("rate: {variants: {a: {learner.optimizer.lr: 0.1}, b: {rollout.temperature: 0.5}}}", False),
        ("run.name: {grid: [a, b]}, learner.optimizer.lr: {grid: [0.1], when: {run.name: a}}", False),
    ],
)
def test_the_value_of_a_varied_key_in_the_base_counts_where_a_trial_has_it(
    space: str, goes_on: bool, tmp_path: Path
) -> None:
    file = write_sweep_file(tmp_path, f"space: {{{space}}}\nbudget: {{trials: 2}}")
    open_sweep(load_sweep(file))
    base = tmp_path / "base.yaml"
    content = yaml.safe_load(base.read_text())
    content["learner"]["optimizer"]["lr"] = 0.05
    base.write_text(yaml.safe_dump(content))
    with nullcontext() if goes_on else pytest.raises(ConfigErrors, match=r"base: learner\.optimizer changed"):
        open_sweep(load_sweep(file))
    content["learner"]["optimizer"]["weight_decay"] = 0.3
    base.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigErrors, match=r"base: learner\.optimizer changed"):
        open_sweep(load_sweep(file))


@pytest.mark.parametrize(
    "entries",
    [
        ("rollout.temperature: {grid: [0.5, 1.0]}", "algorithm.group_size: {grid: [2, 4]}"),
        ("a: {rollout.temperature: 0.5}", "b: {rollout.temperature: 1.0}"),
    ],
)
def test_another_order_of_the_space_would_number_trials_otherwise(entries: tuple[str, str], tmp_path: Path) -> None:
    texts = [", ".join(order) for order in (entries, entries[::-1])]
    texts = [text if "grid" in text else f"heat: {{variants: {{{text}}}}}" for text in texts]
    open_sweep(load_sweep(write_sweep_file(tmp_path, f"space: {{{texts[0]}}}")))
    with pytest.raises(ConfigErrors, match="holds another sweep: the order of space, by which trials are numbered,"):
        open_sweep(load_sweep(write_sweep_file(tmp_path, f"space: {{{texts[1]}}}")))
    open_sweep(load_sweep(write_sweep_file(tmp_path, f"space: {{{texts[0]}}}")))


@pytest.mark.parametrize("scheduler", ["asha", "pbt"])
def test_early_stopping_fixes_its_trials_at_the_beginning(tmp_path: Path, scheduler: str) -> None:
    text = f"space: {{learner.optimizer.lr: {{uniform: [1e-4, 1e-3]}}}}\nscheduler: {scheduler}\nbudget: {{trials: 4}}"
    open_sweep(load_sweep(write_sweep_file(tmp_path, text)))
    with pytest.raises(ConfigErrors, match=r"budget\.trials changed"):
        open_sweep(load_sweep(write_sweep_file(tmp_path, text.replace("4", "5"))))


def wait_for(reached: Callable[[], object]) -> None:
    deadline = time.monotonic() + 100
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.faults
def test_a_process_that_fails_leaves_its_traceback(tmp_path: Path) -> None:
    sweep = load_sweep(write_sweep_file(tmp_path, ""))
    config = trial_config(sweep, {"env.kwargs": {"task": "no_such_task"}}, seed=0, run_dir=tmp_path / "run")
    process = RunProcess(tmp_path, config, threads=1)
    with pytest.raises(TrialFailed, match="Traceback"):
        wait_for(process.ended)
    process.stop()


@pytest.mark.faults
def test_a_process_holds_until_it_may_go_on_and_tells_who_killed_it(tmp_path: Path) -> None:
    sweep = load_sweep(write_sweep_file(tmp_path, "budget: {steps: 6}\nset: {checkpoint.every: 2}"))
    config = trial_config(sweep, {}, seed=0, run_dir=tmp_path / "run")
    process = RunProcess(tmp_path, config, threads=1, hold_every=2)
    first, second, third = (tmp_path / "run" / "checkpoints" / f"step_00000{step}" for step in (2, 4, 6))
    wait_for(first.exists)
    time.sleep(0.5)
    assert not process.ended()
    assert not second.exists()
    process.go_on()
    wait_for(second.exists)
    time.sleep(0.5)
    assert not third.exists()
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(TrialFailed, match="killed by SIGKILL"):
        wait_for(process.ended)
    process.stop()
