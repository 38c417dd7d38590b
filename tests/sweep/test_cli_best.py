"""`best.yaml`: the best setting of a sweep is a file that loads and differs from the base by the setting alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from sweep_files import load_sweep, write_sweep_file
from synthetic import write_sweep

from rlinf.config import load
from rlinf.sweep.cli import best_run, write_best
from rlinf.sweep.load import Sweep
from rlinf.sweep.records import read_sweep
from rlinf.sweep.settings import repeated_draws
from rlinf.sweep.summary import SweepSummary, summarise
from rlinf.train.stored_run import run_folder, run_of_checkpoint

LR = "learner.optimizer.lr"
SPACE = f"space:\n  {LR}: {{grid: [0.001, 0.002]}}\nset: {{algorithm.group_size: 4, cluster.env: {{KEY: hidden}}}}\n"


@pytest.fixture
def swept(tmp_path: Path) -> tuple[Sweep, SweepSummary]:
    sweep = load_sweep(write_sweep_file(tmp_path, SPACE + "budget: {steps: 7}\n"))
    write_sweep(sweep.folder, [{LR: 0.001}, {LR: 0.002}], seeds=2, result=lambda setting: 100 * setting[LR])
    return sweep, summarise(read_sweep(sweep.folder))


def test_the_file_loads_with_the_best_setting(swept: tuple[Sweep, SweepSummary]) -> None:
    path = write_best(*swept)
    assert path is not None
    config, base = load(path), load(swept[0].base)
    assert (config.learner.optimizer.lr, config.algorithm.group_size, config.run.max_steps) == (0.002, 4, 7)
    assert config.run.name == "sweep_best"
    assert config.run.seed == base.run.seed
    assert "hidden" not in path.read_text()


def test_a_base_that_is_a_recipe_stays_its_name(tmp_path: Path, swept: tuple[Sweep, SweepSummary]) -> None:
    path = tmp_path / "named.yaml"
    path.write_text(
        f"base: cartpole_ppo\ndir: {swept[0].folder}\nmetric: reward/mean\nspace: {{{LR}: {{grid: [1]}}}}\n"
    )
    written = write_best(load_sweep(path), swept[1])
    assert written is not None
    assert yaml.safe_load(written.read_text())["extends"] == "cartpole_ppo"
    assert load(written).env.id == "CartPole-v1"


def test_without_a_finished_trial_there_is_no_file(swept: tuple[Sweep, SweepSummary]) -> None:
    sweep, summary = swept
    for trial in summary.trials:
        trial.record.status = "failed"
        trial.record.write()
    again = summarise(read_sweep(sweep.folder))
    assert write_best(sweep, again) is None
    assert best_run(again) is None


def test_a_trial_folder_stands_for_its_run(swept: tuple[Sweep, SweepSummary]) -> None:
    run = best_run(swept[1])
    assert run is not None
    assert run_folder(run.parent) == run_folder(run) == run
    (run / "config.yaml").write_text("")
    assert run_of_checkpoint(run.parent) == (run, None)


@pytest.mark.parametrize(
    ("space", "trials", "words"),
    [
        ("{choice: [1, 2, 3]}", 9, "9 settings are drawn and only 3 differ, so 3 settings will be tried"),
        ("{choice: [5]}", 4, "so 1 setting will be tried"),
        ("{uniform: [0.1, 0.2]}", 9, ""),
    ],
)
def test_settings_that_are_drawn_again_are_reported(tmp_path: Path, space: str, trials: int, words: str) -> None:
    text = f"space: {{{LR}: {space}}}\nbudget: {{trials: {trials}}}\n"
    found = repeated_draws(load_sweep(write_sweep_file(tmp_path, text)).config)
    assert words in found if words else found == ""
