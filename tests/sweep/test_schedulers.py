"""What the schedulers remember and who copies whom, without a cluster."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sweep_files import load_sweep, write_sweep_file

pytest.importorskip("ray.tune")

from ray.tune.schedulers import TrialScheduler

from rlinf.sweep.schedulers import Population, scheduler_of
from rlinf.sweep.settings import plan_of

LR = "learner.optimizer.lr"


def scheduler(folder: Path, text: str) -> Any:
    sweep = load_sweep(write_sweep_file(folder, text))
    sweep.folder.mkdir(exist_ok=True)
    found = scheduler_of(sweep)
    assert found.set_search_properties("objective", "max"), "Tune would refuse it"
    return found


def judge(asha: Any, name: str, value: float) -> str:
    """What ASHA decides for a trial that reaches step 2 with a value."""
    trial = SimpleNamespace(trial_id=name)
    asha.on_trial_add(None, trial)
    return asha.on_trial_result(None, trial, {"step": 2, "objective": value})


def test_the_rungs_of_asha_outlive_the_driver(tmp_path: Path) -> None:
    text = "scheduler: {name: asha, grace_steps: 2, reduction: 3}\nbudget: {steps: 8}"
    first = scheduler(tmp_path, text)
    for number in range(3):
        judge(first, f"t{number}", 1.0 + number)
    again = scheduler(tmp_path, text)
    assert judge(again, "bad", 0.0) == TrialScheduler.STOP
    assert judge(again, "good", 9.0) == TrialScheduler.CONTINUE
    (tmp_path / "new").mkdir()
    assert judge(scheduler(tmp_path / "new", text), "bad", 0.0) == TrialScheduler.CONTINUE


def test_a_trial_that_copies_another_keeps_its_own_name_and_seed(tmp_path: Path) -> None:
    text = f"scheduler: {{name: pbt}}\nbudget: {{trials: 2}}\nspace: {{{LR}: {{loguniform: [1e-4, 1e-2]}}}}"
    population = scheduler(tmp_path, text)
    assert isinstance(population, Population)

    def trial(number: int, lr: float) -> Any:
        plan = {"number": number, "setting": {LR: lr}, "seed": 0, "folder": f"{number:04d}"}
        return SimpleNamespace(config={"trial": plan}, last_result={"step": 10})

    config, _ = population._get_new_config(trial(0, 1e-4), trial(1, 5e-3))
    plan, folder = plan_of(config, [0])
    assert (plan.number, plan.seed, folder) == (0, 0, "0000")
    assert plan.setting[LR] != 1e-4
    assert 1e-4 <= plan.setting[LR] <= 1e-2
