"""A metric that no line of a run can have is named before the run begins, with what is alike."""

from __future__ import annotations

import pytest
from config_cases import MINIMAL, QUICKSTART, mistakes

from rlinf.config import load, load_mapping
from rlinf.config.checks.metric_names import metric_mistake

SIMULATOR = {
    "env": {"id": "CartPole-v1"},
    "policy": {"name": "actor_critic"},
    "algorithm": {"adv_type": "gae", "loss_type": "actor_critic"},
}


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("eval/acuracy", "Did you mean eval/accuracy"),
        ("eval/pass@3", "eval/pass@4"),
        ("eval/success_once", "There are eval/accuracy, eval/accuracy/{term}, eval/reward/{term}, eval/avg@4, eval/pa"),
        ("eval/xyz", "There are eval/accuracy, eval/accuracy/{term}, eval/reward/{term}, eval/avg@4, eval/pass@2, "),
    ],
)
def test_a_metric_of_no_evaluation_is_refused_as_the_best(name: str, fix: str) -> None:
    message = mistakes(
        QUICKSTART, f"checkpoint.best_metric={name}", "evaluation.samples=4", "evaluation.temperature=0.6"
    )
    assert f"checkpoint.best_metric: {name} is no metric of this run's evaluations." in message
    assert fix in message


@pytest.mark.parametrize("name", ["eval/accuracy", "eval/pass@2", "eval/avg@4/ci_low", "eval/reward/algebra"])
def test_a_metric_of_an_evaluation_is_taken(name: str) -> None:
    several = ["evaluation.samples=4", "evaluation.temperature=0.6"]
    assert load(QUICKSTART, [f"checkpoint.best_metric={name}", *several]).checkpoint.best_metric == name


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("eval/accuracy", "There are eval/return, "),
        ("eval/retrun", "Did you mean eval/return"),
        ("eval/follows", ""),
        ("rollout/retrun", "Did you mean rollout/return"),
        ("accuracy", "Did you mean "),
        ("train/los", "Did you mean train/loss"),
        ("reward_term/format", "Did you mean reward_terms/{term}"),
        ("completely else", "`rlinf list metrics` explains each."),
    ],
)
def test_a_metric_of_no_run_is_named(name: str, fix: str) -> None:
    found = metric_mistake(load_mapping(SIMULATOR), name)
    assert found is not None
    assert name in found.message
    assert fix in found.fix


@pytest.mark.parametrize(
    "name", ["step", "rollout/return", "eval/success_once/lift", "reward_terms/format", "own/heat", "train/loss"]
)
def test_terms_of_the_users_own_are_taken(name: str) -> None:
    assert metric_mistake(load_mapping(SIMULATOR), name) is None


def test_what_switches_of_the_run_measure_counts() -> None:
    words = load_mapping({**SIMULATOR, "evaluation": {"words": []}})
    assert metric_mistake(words, "eval/blank_words") is not None
    text = load_mapping(MINIMAL)
    assert metric_mistake(text, "eval/sft_loss") is not None
    warm = load_mapping({**MINIMAL, "sft": {"steps": 3}})
    assert metric_mistake(warm, "eval/sft_loss") is None
    assert metric_mistake(warm, "eval/sft_loss", on_files=False) is not None
    silent = metric_mistake(load_mapping({**MINIMAL, "evaluation": {"size": 0}}), "eval/accuracy")
    assert silent is not None
    assert "evaluation.size is 0" in silent.message
