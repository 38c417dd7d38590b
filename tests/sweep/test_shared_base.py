"""`share_base`: trials with adapters in one process, each with the bits of the run alone, also after failures and
kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import tiny_runs
import yaml
from sweep_files import load_sweep

from rlinf.config import ConfigErrors
from rlinf.models.kept_base import base_model, keep_base
from rlinf.sweep.cli import checked_sweep
from rlinf.sweep.records import TrialRecord, read_sweep
from rlinf.train import run

pytest.importorskip("peft")
LR = "learner.optimizer.lr"
RATES = [1e-4, 1e-3, 1e-2]
BASE: dict[str, Any] = {
    "policy": {"lora": {"rank": 2, "alpha": 4}},
    "sft": {"steps": 2},
    "env": {"kwargs": tiny_runs.GRADED_BY_LENGTH},
    "evaluation": {"every": 2, "size": 8},
    "run": {"max_steps": 3},
}


def write(folder: Path, text: str = "", base: Any = BASE) -> Path:
    (folder / "base.yaml").write_text(yaml.safe_dump(tiny_runs.mapping(folder / "alone", **base)))
    file = folder / "sweep.yaml"
    grid = f"space: {{{LR}: {{grid: {RATES}}}}}\n"
    text = f"base: base.yaml\ndir: {folder}/out\nmetric: eval/reward\nshare_base: true\n{grid}{text}"
    file.write_text(text)
    return file


def start(file: Path, *overrides: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(
        [sys.executable, "-m", "rlinf.cli", "sweep", str(file), *overrides],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def sweep(file: Path, *overrides: str, code: int = 0) -> str:
    process = start(file, *overrides)
    output, _ = process.communicate(timeout=500)
    assert process.returncode == code, output
    return output


def digest(run_dir: Path) -> str:
    return str(json.loads((run_dir / "summary.json").read_text())["params_sha256"])


def trials(file: Path) -> dict[float, TrialRecord]:
    return {trial.setting[LR]: trial for trial in read_sweep(file.parent / "out").trials}


def evaluations(run_dir: Path) -> list[dict[str, float]]:
    lines = tiny_runs.logged(run_dir)
    return [{key: value for key, value in line.items() if key.startswith("eval/")} for line in lines]


@pytest.mark.slow
def test_each_trial_has_the_bits_of_the_run_alone(tmp_path: Path) -> None:
    file = write(tmp_path)
    output = sweep(file)
    assert "3/3 trials" in output
    assert (tmp_path / "out" / "report.html").exists()
    found = trials(file)
    assert [trial.status for trial in found.values()] == ["finished"] * 3
    for rate in (RATES[0], RATES[-1]):
        base = tiny_runs.config(tmp_path / f"alone_{rate}", **{**BASE, "learner": {"optimizer": {"lr": rate}}})
        run(base, report=False)
        assert digest(found[rate].run_dir) == digest(tmp_path / f"alone_{rate}")
        assert evaluations(found[rate].run_dir) == evaluations(tmp_path / f"alone_{rate}")
    assert len({digest(trial.run_dir) for trial in found.values()}) == 3
    assert "every trial is at its end already" in sweep(file)


@pytest.mark.slow
def test_a_trial_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    file = write(tmp_path, "retries: 0\n")
    # A learning rate that leaves the weights finite for one of the trials only.
    text = file.read_text().replace(str(RATES), "[1.0e-3, 1.0e+30, 1.0e-4]")
    file.write_text(text)
    output = sweep(file, code=1)
    found = trials(file)
    assert [found[rate].status for rate in (1e-3, 1e30, 1e-4)] == ["finished", "failed", "finished"], output
    assert "Traceback" in (found[1e30].error or "")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_kill_of_the_process_fails_its_trial_and_a_kill_of_all_goes_on(tmp_path: Path) -> None:
    file = write(tmp_path)
    process = start(file)
    first = tmp_path / "out" / "trials"
    deadline = time.monotonic() + 500
    while not list(first.glob("*/run/checkpoints/step_000001")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    children = subprocess.run(["ps", "--ppid", str(process.pid), "-o", "pid="], capture_output=True, text=True)
    os.kill(int(children.stdout.split()[0]), signal.SIGKILL)
    while not list(first.glob("*/run/summary.json")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.communicate()
    sweep(file)
    found = trials(file)
    assert [trial.status for trial in found.values()] == ["finished"] * 3
    assert sum(trial.failures for trial in found.values()) == 1
    run(tiny_runs.config(tmp_path / "one", **{**BASE, "learner": {"optimizer": {"lr": RATES[0]}}}), report=False)
    assert digest(found[RATES[0]].run_dir) == digest(tmp_path / "one")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("scheduler: asha\n", "scheduler: asha compares them"),
        ("resources: {max_parallel: 2}\n", "trials run one after another"),
        ("set: {policy.lora.rank: 0, algorithm.strict: false}\n", "the whole model would be trained"),
        ("set: {cluster.backend: ray}\n", "processes of their own"),
    ],
)
def test_what_cannot_share_a_base_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ConfigErrors, match=reason):
        checked_sweep(write(tmp_path, text), [])


def test_the_key_is_read(tmp_path: Path) -> None:
    assert load_sweep(write(tmp_path)).config.share_base


def test_a_kept_base_is_made_once_and_shares_its_tensors() -> None:
    import torch

    made: list[torch.nn.Module] = []

    def make() -> torch.nn.Module:
        made.append(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)))
        return made[-1]

    with keep_base():
        one, other = base_model("a", make), base_model("a", make)
        assert one is not other
        assert [p.data_ptr() for p in one.parameters()] == [p.data_ptr() for p in other.parameters()]
        base_model("b", make)
        assert len(made) == 2
    assert base_model("b", make) is made[-1]
