"""Whole sweeps on Ray, as a command given in a folder of one's own: with failures, kills and every scheduler."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from sweep_files import load_sweep, write_base

from rlinf.base.json_files import read_json_lines
from rlinf.sweep.records import SweepRecord, TrialRecord, read_sweep

pytest.importorskip("ray.tune")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
LR = "learner.optimizer.lr"


class Command:
    """`rlinf sweep sweep.yaml`, given in ``folder``; paths in the file are relative to there."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder = folder
        write_base(folder, evaluation={"every": 1}, sft={"steps": 0})
        (folder / "sweep.yaml").write_text(f"base: base.yaml\ndir: out\nmetric: rollout/response_length\n{text}")

    def start(self, *overrides: str) -> subprocess.Popen[str]:
        path = os.pathsep.join([str(ROOT), str(ROOT / "envs")])
        return subprocess.Popen(
            [sys.executable, "-m", "rlinf.cli", "sweep", "sweep.yaml", *overrides],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *overrides: str, expected: int = 0) -> str:
        process = self.start(*overrides)
        output, _ = process.communicate(timeout=400)
        assert process.returncode == expected, output
        return output

    def kill_when(self, reached: Callable[[], object]) -> str:
        """SIGKILL to the driver as soon as something is so; what it has printed."""
        process = self.start()
        deadline = time.monotonic() + 300
        while not reached() and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.kill()
        output, _ = process.communicate(timeout=60)
        return output

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def sweep(self) -> SweepRecord:
        return read_sweep(self.out)

    def statuses(self) -> list[str]:
        return sorted(trial.status for trial in self.sweep().trials)

    def logs(self) -> str:
        return "".join(path.read_text() for path in self.out.glob("trials/*/log.txt"))


def last_line(trial: TrialRecord) -> dict[str, float]:
    """The last step's metrics."""
    return json.loads((trial.run_dir / "metrics.jsonl").read_text().splitlines()[-1])


def has_copied(trial: TrialRecord) -> bool:
    """Whether it has gone on after its last copy."""
    steps = [numbers["step"] for numbers in read_json_lines(trial.run_dir / "metrics.jsonl", number="step").rows]
    return bool(trial.lineage) and max(steps, default=0) > trial.lineage[-1]["step"]


def test_a_failing_trial_is_reported_and_stops_nothing(tmp_path: Path) -> None:
    command = Command(tmp_path, f"budget: {{steps: 3}}\nspace: {{{LR}: {{grid: [1.0e-3, 1.0e+38]}}}}")
    output = command.run(expected=1)
    assert "Traceback" in output
    assert "failed, and will be tried again" in output
    assert "failed for good" in output
    assert command.statuses() == ["failed", "finished"]
    assert [trial.failures for trial in command.sweep().trials] == [0, 2]
    assert (command.out / "report.html").exists()


def test_a_killed_sweep_goes_on_where_it_stopped(tmp_path: Path) -> None:
    command = Command(tmp_path, "budget: {steps: 60}\nset: {checkpoint.every: 5}\nseeds: [0, 1, 2]")
    command.kill_when(lambda: list(command.out.glob("trials/*/run/checkpoints/step_*")))
    output = command.run()
    assert command.statuses() == ["finished"] * 3
    assert "continuing from step_" in command.logs()
    assert "Best:" in output
    assert "every trial is at its end already" in command.run()


def test_the_same_command_goes_on_unless_what_trials_have_of_the_base_changed(tmp_path: Path) -> None:
    """Each trial takes the varied key from the space, so that its value in the base counts for none."""
    command = Command(tmp_path, f"budget: {{steps: 1}}\nspace: {{{LR}: {{grid: [1.0e-3, 1.0e-4]}}}}")
    command.run()
    files = {trial.run_dir: (trial.run_dir / "metrics.jsonl").read_bytes() for trial in command.sweep().trials}
    base = yaml.safe_load((tmp_path / "base.yaml").read_text())
    base["learner"]["optimizer"]["lr"] = 0.5
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(base))
    assert "every trial is at its end already" in command.run()
    assert files == {run: (run / "metrics.jsonl").read_bytes() for run in files}
    base["rollout"]["temperature"] = 0.5
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(base))
    assert "holds another sweep: base: rollout.temperature changed" in command.run(expected=2)
    assert command.statuses() == ["finished"] * 2


def test_a_trial_whose_process_is_killed_is_tried_again(tmp_path: Path) -> None:
    command = Command(tmp_path, "budget: {steps: 60}\nset: {checkpoint.every: 5}")
    process = command.start()
    deadline = time.monotonic() + 300
    while not list(command.out.glob("trials/*/run/checkpoints/step_*")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    listed = subprocess.run(["pgrep", "-f", f"trial_process {command.out}"], capture_output=True, text=True, check=True)
    os.kill(int(listed.stdout.split()[0]), signal.SIGKILL)
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0
    assert "the run was killed by SIGKILL" in output
    [trial] = command.sweep().trials
    assert (trial.status, trial.failures) == ("finished", 1)
    assert "continuing from step_" in command.logs()


@pytest.mark.parametrize(("number", "again"), [(signal.SIGTERM, 1), (signal.SIGHUP, 1), (signal.SIGINT, 2)])
def test_a_signal_ends_the_sweep_and_the_same_command_continues(tmp_path: Path, number: int, again: int) -> None:
    command = Command(tmp_path, "budget: {steps: 60}\nset: {checkpoint.every: 5}\nseeds: [0, 1]")
    process = command.start()
    deadline = time.monotonic() + 300
    while not list(command.out.glob("trials/*/run/checkpoints/step_*")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    for _ in range(again):
        process.send_signal(number)
        time.sleep(0.5)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 128 + number, output
    assert "The same command continues" in output or "the same command goes on" in output
    assert "Traceback" not in output
    assert subprocess.run(["pgrep", "-f", f"trial_process {command.out}"], check=False).returncode == 1
    assert set(command.statuses()) == {"interrupted"}
    command.run()
    assert command.statuses() == ["finished"] * 2


@pytest.mark.parametrize("backend", ["torch", "fsdp", pytest.param("megatron", marks=pytest.mark.megatron)])
def test_a_population_copies_the_better_and_trains_with_what_it_changed(tmp_path: Path, backend: str) -> None:
    text = f"""
set: {{learner.backend: {backend}}}
scheduler: {{name: pbt, perturb_every: 2, quantile: 0.5}}
space: {{{LR}: {{loguniform: [1e-5, 1e-2]}}}}
budget: {{trials: 3, steps: 8}}
"""
    command = Command(tmp_path, text)
    output = command.kill_when(lambda: command.out.exists() and any(map(has_copied, command.sweep().trials)))
    command.run()
    trials = command.sweep().trials
    assert command.statuses() == ["finished"] * 3
    copied = [(trial, taken) for trial in trials for taken in trial.lineage]
    assert copied
    for trial, taken in copied:
        assert taken["step"] % 2 == 0
        assert taken["from"] != trial.folder.name
    for trial in trials:
        assert last_line(trial)["step"] == 8
        assert last_line(trial)["train/lr"] == pytest.approx(trial.setting[LR])
    assert "goes on with" in output
    assert "step " in (command.out / "trials.csv").read_text()


@pytest.mark.parametrize("scheduler", ["none", "{name: asha, grace_steps: 100}", "{name: pbt, perturb_every: 40}"])
def test_a_sweep_out_of_time_goes_on_with_the_next_call(tmp_path: Path, scheduler: str) -> None:
    steps = "budget: {trials: 2, steps: 400}\nset: {checkpoint.every: 2}"
    command = Command(tmp_path, f"scheduler: {scheduler}\nspace: {{{LR}: {{uniform: [1e-4, 1e-3]}}}}\n{steps}")
    seconds = 20
    # As long as this machine needs for the first steps, and no longer than for all of them.
    while not list(command.out.glob("trials/*/run/checkpoints/step_*")):
        output = command.run(f"budget.wall_time_s={seconds}")
        seconds += 6
        assert "Out of time" in output
    assert "out of time" in command.statuses()
    command.run()
    assert command.statuses() == ["finished"] * 2
    assert "continuing from step_" in command.logs()


@pytest.mark.megatron
def test_a_trial_of_several_processes_has_a_ray_of_its_own(tmp_path: Path) -> None:
    learner = "learner.backend: megatron, learner.num_workers: 2, learner.megatron: {tensor_parallel: 2}"
    text = f"set: {{cluster.backend: ray, {learner}}}\nbudget: {{steps: 3}}\nspace: {{{LR}: {{grid: [1e-3, 2e-3]}}}}"
    command = Command(tmp_path, f"{text}\nresources: {{max_parallel: 1}}")
    command.run()
    assert command.statuses() == ["finished"] * 2
    assert [last_line(trial)["train/lr"] for trial in command.sweep().trials] == pytest.approx([1e-3, 2e-3])


def test_optuna_suggests_after_what_it_has_seen_also_after_a_kill(tmp_path: Path) -> None:
    """Killed, and given a larger budget: still the settings of a searcher with the same results."""
    pytest.importorskip("optuna")
    from rlinf.sweep.engine import searcher_of

    text = f"""
search: optuna
space: {{{LR}: {{loguniform: [1e-5, 1e-2]}}, algorithm.gamma: {{choice: [0.9, 1.0]}}}}
budget: {{trials: 11, steps: 2}}
resources: {{max_parallel: 2}}
"""
    command = Command(tmp_path, text)
    command.kill_when(lambda: command.out.exists() and command.statuses().count("finished") > 3)
    assert "finished" in command.statuses()
    path = tmp_path / "sweep.yaml"
    path.write_text(path.read_text().replace("trials: 11", "trials: 13"))
    output = command.run()
    trials = command.sweep().trials
    assert command.statuses() == ["finished"] * 13
    assert "13/13 trials" in output
    searcher, running = searcher_of(load_sweep(path)).searcher, list[TrialRecord]()
    for trial in trials:
        while (suggestion := searcher.suggest(trial.folder.name)) is None:
            first = running.pop(0)
            value = last_line(first)["rollout/response_length"]
            searcher.on_trial_complete(first.folder.name, result={"objective": value})
        assert suggestion["setting"] == trial.setting
        running.append(trial)


def test_the_seeds_of_a_suggested_setting_are_side_by_side(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    space = f"{{{LR}: {{loguniform: [1e-5, 1e-2]}}}}"
    command = Command(tmp_path, f"search: optuna\nseeds: [0, 1]\nspace: {space}\nbudget: {{trials: 2, steps: 2}}")
    command.run()
    trials = command.sweep().trials
    assert command.statuses() == ["finished"] * 4
    assert [trial.seed for trial in trials] == [0, 1] * 2
    assert [trial.setting for trial in trials[::2]] == [trial.setting for trial in trials[1::2]]
    assert len({trial.setting[LR] for trial in trials}) == 2


def test_a_sequential_sweep_ends_when_the_best_is_decided(tmp_path: Path) -> None:
    """Untrained responses are cut at their limit: the longer limit wins with every seed, and two of four are enough."""
    space = "space: {rollout.max_new_tokens: {grid: [2, 4]}}\nseeds: [0, 1, 2, 3]\n"
    command = Command(tmp_path, f"{space}stop: sequential\nbudget: {{steps: 1}}\n")
    assert "Decided after 2 of 4 seeds a setting" in command.run()
    assert len(list((tmp_path / "out" / "trials").iterdir())) == 4
    assert "Decided after 2 of 4 seeds a setting" in command.run()
    assert len(list((tmp_path / "out" / "trials").iterdir())) == 4
