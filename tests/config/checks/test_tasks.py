"""Mixtures of text environments and adaptive pools: what can't be meant is refused before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_runs import mapping

from rlinf.config import Config, ConfigErrors, load, load_mapping
from rlinf.config.derived import max_turns, text_envs

GUESS = {"name": "guess", "id": "rlinf_envs:rlinf/GuessNumber-v0", "max_turns": 3}
PRICES = {"id": "rlinf_envs:rlinf/PriceList-v0", "weight": 2, "max_turns": 2}


def load_mixture(folder: Path, tasks: list[dict[str, Any]], **sections: Any) -> Config:
    env = {"id": "", "kwargs": {}, "tasks": tasks}
    return load_mapping(mapping(folder, **{"env": env, "evaluation": {"env_kwargs": None}, **sections}), source="test")


def test_each_environment_has_its_own_turns_and_arguments(tmp_path: Path) -> None:
    tasks = [GUESS, {**PRICES, "kwargs": {"prices": 5}, "evaluation_kwargs": {"prices": 9}}]
    config = load_mixture(tmp_path, tasks, evaluation={"env_kwargs": {"things": 2}})
    guess, prices = text_envs(config)
    assert [guess.name, prices.name, guess.max_turns, prices.max_turns] == ["guess", "PriceList", 3, 2]
    assert prices.splits == {"train": {"prices": 5}, "eval": {"prices": 9, "things": 2}}
    assert max_turns(config) == 3


def test_a_list_under_env_is_a_mixture(tmp_path: Path) -> None:
    file = tmp_path / "mix.yaml"
    file.write_text("env: [{id: 'rlinf_envs:rlinf/GuessNumber-v0', max_turns: 4}, {id: 'tiny_runs:Env', weight: 3}]\n")
    config = load(file, ["env.num_workers=2", "policy.architecture={model_type: qwen2}"])
    assert [(task.id, task.weight) for task in config.env.tasks] == [
        ("rlinf_envs:rlinf/GuessNumber-v0", 1.0),
        ("tiny_runs:Env", 3.0),
    ]
    assert config.env.num_workers == 2


@pytest.mark.parametrize(
    ("tasks", "sections", "words"),
    [
        ([GUESS, GUESS], {}, "guess is the name of several tasks"),
        ([{**GUESS, "name": "n"}, PRICES], {}, "is what a part of every metric is called"),
        ([GUESS, {"name": "nothing"}], {}, "nothing has no id"),
        ([{**GUESS, "weight": 0}], {}, "weights must be at least 0, and one of them above"),
        ([GUESS, {"id": "agent:agents_for_tests:talk"}], {}, "can't be mixed"),
        ([{**GUESS, "max_turns": 0}], {}, "max_turns of guess must be at least 1"),
        ([{**GUESS, "instruction": "guess"}], {}, "instruction is read by simulators only"),
        ([{**GUESS, "turns": 3}], {}, r"env\.tasks\.turns is not a key"),
        ([GUESS], {"data": {"pool": {"solved": 0.5, "unsolved": 0.5}}}, "every task would rest"),
        ([GUESS], {"data": {"pool": {"solved": 2}}}, r"data\.pool\.solved must be at most 1"),
        ([GUESS], {"data": {"pool": {"rest": 2}}}, "while no task rests"),
    ],
)
def test_what_cannot_be_meant_is_named(
    tmp_path: Path, tasks: list[dict[str, Any]], sections: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigErrors, match=words):
        load_mixture(tmp_path, tasks, **sections)
