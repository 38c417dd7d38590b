"""How a population's settings change: within the space, valid, and the same every time."""

from pathlib import Path

from sweep_files import load_sweep, write_sweep_file

from rlinf.sweep.load import Sweep
from rlinf.sweep.schedulers import perturbed
from rlinf.sweep.settings import Setting

LR, GAMMA = "learner.optimizer.lr", "algorithm.gamma"
SPACE = """
scheduler: {name: pbt, perturb_every: 2}
budget: {trials: 4, steps: 8}
space:
  learner.optimizer.lr: {loguniform: [1e-4, 1e-2]}
  algorithm.group_size: {integer: [2, 8]}
  rollout.batch_size: {like: algorithm.group_size, times: 2}
  "algorithm.clip_ratio_low, algorithm.clip_ratio_high": {choice: [[0.1, 0.1], [0.2, 0.2], [0.2, 0.3]]}
  algorithm.kl_beta: {choice: [0.0, 0.1]}
  algorithm.kl_penalty_type: {choice: [k1, k2], when: {algorithm.kl_beta: 0.1}}
"""
START: Setting = {
    LR: 1e-2,
    "algorithm.group_size": 2,
    "rollout.batch_size": 4,
    "algorithm.clip_ratio_low": 0.2,
    "algorithm.clip_ratio_high": 0.2,
    "algorithm.kl_beta": 0.1,
    "algorithm.kl_penalty_type": "k1",
}


def population(folder: Path, text: str = SPACE) -> Sweep:
    return load_sweep(write_sweep_file(folder, text))


def test_neighbours_stay_in_the_space_and_keep_links_and_conditions(tmp_path: Path) -> None:
    sweep = population(tmp_path)
    found = [perturbed(sweep, START, trial=trial, step=4) for trial in range(40)]
    for one in found:
        assert 1e-4 <= one[LR] <= 1e-2
        assert 2 <= one["algorithm.group_size"] <= 8
        assert one["rollout.batch_size"] == 2 * one["algorithm.group_size"]
        assert ("algorithm.kl_penalty_type" in one) == (one["algorithm.kl_beta"] == 0.1)
        pair = [one["algorithm.clip_ratio_low"], one["algorithm.clip_ratio_high"]]
        assert pair in [[0.1, 0.1], [0.2, 0.2], [0.2, 0.3]]
    assert {0.8e-2, 1e-2} <= {round(one[LR], 10) for one in found}
    assert 3 in {one["algorithm.group_size"] for one in found}
    assert {0.1, 0.2} == {one["algorithm.clip_ratio_low"] for one in found}


def test_the_same_trial_at_the_same_step_changes_the_same_way(tmp_path: Path) -> None:
    sweep = population(tmp_path)
    assert perturbed(sweep, START, trial=1, step=4) == perturbed(sweep, START, trial=1, step=4)
    assert perturbed(sweep, START, trial=1, step=4) != perturbed(sweep, START, trial=1, step=6)


def test_what_no_run_could_have_is_not_suggested(tmp_path: Path) -> None:
    """gamma above 1 is refused by the checks of a run: the neighbour above the only valid value never comes."""
    text = "scheduler: {name: pbt}\nbudget: {trials: 2}\nspace: {algorithm.gamma: {choice: [1.0, 1.5]}}"
    sweep = population(tmp_path, text)
    assert {perturbed(sweep, {GAMMA: 1.0}, trial=trial, step=5)[GAMMA] for trial in range(20)} == {1.0}
