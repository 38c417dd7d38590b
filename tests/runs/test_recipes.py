"""Every file under `config/` is a valid run, and the algorithm of each recipe takes its steps on a tiny model."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from config_cases import skip_without_simulator
from omegaconf import OmegaConf
from tiny_runs import GRADED_BY_LENGTH, mapping

from rlinf.config import Config, ConfigErrors, load, load_mapping
from rlinf.train import run

FOLDER = Path(__file__).parents[2] / "config"
FILES = sorted(file for file in FOLDER.rglob("*.yaml") if "sweeps" not in file.parts)
SIMULATORS = sorted((FOLDER / "sim").glob("*.yaml"))
RECIPES = sorted(file for file in (FOLDER / "math").glob("*.yaml") if not file.stem.startswith("quickstart"))

MADE_BEFORE = re.compile(
    r"(models/\w+|datasets/\w+|runs/(distillation_teacher|smollm2_word_problems)/policy|build/[\w/]+\.\w+) "
    r"does not exist"
)
"""What a model that another command fetches, trains or writes is missed with."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_file_is_a_valid_run(file: Path) -> None:
    try:
        assert isinstance(load(file), Config)
    except ConfigErrors as error:
        skip_without_simulator(error)
        if not all(MADE_BEFORE.search(str(problem)) for problem in error.problems):
            raise


@pytest.mark.parametrize("file", RECIPES + SIMULATORS, ids=lambda file: file.stem)
def test_a_recipe_is_short_and_describes_itself(file: Path) -> None:
    text = file.read_text()
    assert text.startswith("# ")
    assert "arXiv:" in text or file in SIMULATORS
    # A published policy needs the settings that it was trained with.
    assert _leaves(yaml.safe_load(text)) < (34 if file.stem == "libero_openvla_oft" else 25)


def _leaves(node: Any) -> int:
    return sum(_leaves(value) for value in node.values()) if isinstance(node, dict) else 1


@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_the_algorithm_of_a_recipe_trains(file: Path, tmp_path: Path) -> None:
    recipe = load(file)
    algorithm = {name: value for name, value in asdict(recipe.algorithm).items() if value != _default(name)}
    group = recipe.algorithm.group_size
    sections = mapping(
        tmp_path / "run",
        run={"max_steps": 2},
        sft={"steps": 2},
        policy={"value_head": recipe.policy.value_head},
        rollout={"batch_size": 8 if group == 1 else 4, "max_new_tokens": 24, "temperature": recipe.rollout.temperature},
        algorithm=algorithm,
        evaluation={"size": 4},
        checkpoint={"every": 0, "export": False},
        reward_model={**asdict(recipe.reward_model), "fit_batches": min(1, recipe.reward_model.fit_batches)},
    )
    steps = recipe.env.kwargs.get("steps")
    if steps is not None:
        sections["env"]["kwargs"]["steps"] = steps
    run(load_mapping(sections, source=file.name))
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["step"] == 2
    assert last["train/grad_norm"] > 0 or last["reward/constant_groups"] == 1


def test_grpo_on_cartpole_and_on_arithmetic_has_the_same_keys(tmp_path: Path) -> None:
    cartpole, arithmetic = FOLDER / "sim" / "cartpole_grpo.yaml", FOLDER / "math" / "quickstart.yaml"
    blocks, other = (OmegaConf.to_container(OmegaConf.load(file)) for file in (cartpole, arithmetic))
    assert isinstance(blocks, dict)
    assert isinstance(other, dict)
    keys = blocks["algorithm"]
    assert keys["adv_type"] == "grpo"
    small = mapping(tmp_path / "math", run={"max_steps": 2}, algorithm=keys, env={"kwargs": GRADED_BY_LENGTH})
    run(load_mapping(small, source=cartpole.name))
    blocks |= {"cluster": {"backend": "local"}, "logging": {"progress": "none", "tensorboard": False}}
    blocks |= {"run": {"dir": str(tmp_path / "sim"), "max_steps": 2}, "evaluation": {"size": 4}}
    run(load_mapping({**blocks, "algorithm": other["algorithm"]}, source=arithmetic.name))
    for folder in ("math", "sim"):
        lines = [json.loads(line) for line in (tmp_path / folder / "metrics.jsonl").read_text().splitlines()]
        assert [line["train/grad_norm"] > 0 for line in lines if "train/grad_norm" in line][-2:] == [True, True]


def _default(name: str) -> object:
    return asdict(Config().algorithm)[name]
