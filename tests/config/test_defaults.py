"""Defaults that depend on the kind of run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from config_cases import MINIMAL

from rlinf.config import Config, load, load_mapping, to_mapping, to_yaml
from rlinf.config.defaults import CONDITIONAL
from rlinf.config.problems import Origin
from rlinf.config.reader import Reader
from rlinf.config.reference import reference
from rlinf.config.tree import Branch, Located, merge, origins
from rlinf.config.values import Builder
from rlinf.planning.describe import plan

CONFIGS = Path(__file__).parents[2] / "config"
RECIPES = sorted(path for path in CONFIGS.rglob("*.yaml") if path.parent.name != "sweeps")
SIMULATOR: dict[str, dict[str, object]] = {"env": {"id": "CartPole-v1"}, "policy": {"name": "actor_critic"}}
PPO = {**SIMULATOR, "algorithm": {"adv_type": "gae", "loss_type": "actor_critic"}}
SAC = {"env": {"id": "Pendulum-v1"}, "policy": {"name": "actor_critic"}, "algorithm": {"loss_type": "sac"}}
TEXT: dict[str, Any] = {**MINIMAL, "algorithm": {}}


@pytest.mark.parametrize(
    ("sections", "lr", "gamma", "group_size"),
    [
        (PPO, 3e-4, 0.99, 1),
        (SAC, 3e-4, 0.99, 1),
        (SIMULATOR, 3e-4, 1.0, 8),
        (TEXT, 1e-6, 1.0, 8),
        ({**TEXT, "algorithm": {"adv_type": "reinforce"}}, 1e-6, 1.0, 1),
        ({**TEXT, "algorithm": {"adv_type": "rloo"}}, 1e-6, 1.0, 8),
    ],
    ids=["ppo", "sac", "simulator_grpo", "text_grpo", "text_reinforce", "text_rloo"],
)
def test_defaults_fit_the_kind_of_run(sections: dict[str, object], lr: float, gamma: float, group_size: int) -> None:
    config = load_mapping(sections)
    algorithm = config.algorithm
    assert (config.learner.optimizer.lr, algorithm.gamma, algorithm.group_size) == (lr, gamma, group_size)


def test_what_is_written_counts_also_where_it_is_the_default_of_another_kind() -> None:
    sections = {**PPO, "learner": {"optimizer": {"lr": 1e-6}}, "algorithm": {**PPO["algorithm"], "gamma": 1.0}}
    config = load_mapping(sections)
    assert (config.learner.optimizer.lr, config.algorithm.gamma) == (1e-6, 1.0)


def test_a_pretrained_model_is_tuned_gently(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    warm = {**TEXT, "sft": {"steps": 5}}
    assert load_mapping(warm).sft.lr == 1e-3
    assert load_mapping({**warm, "policy": {"path": str(tmp_path)}}).sft.lr == 1e-5
    # A run without supervised steps does not read it: nothing changes there.
    assert load_mapping({**TEXT, "policy": {"path": str(tmp_path)}}).sft.lr == 1e-3


def test_a_pretrained_vla_keeps_the_learning_rate_of_language_models(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    vla = {**SIMULATOR, "policy": {"name": "vla"}}
    assert load_mapping(vla).learner.optimizer.lr == 3e-4
    vla = {**SIMULATOR, "policy": {"name": "vla", "vla": {"language": {"path": str(tmp_path)}}}}
    assert load_mapping(vla).learner.optimizer.lr == 1e-6


def test_the_plan_and_the_page_show_where_a_default_comes_from() -> None:
    assert "0.0003, constant (default for simulators" in str(plan(load_mapping(PPO), cpus=2, gpus=0))
    assert "(default for" not in str(plan(load_mapping(TEXT), cpus=2, gpus=0))
    assert "| `1e-06`; `0.0003` for simulators" in reference()


def test_a_stored_configuration_names_every_value_and_is_read_back(tmp_path: Path) -> None:
    for sections in (PPO, SAC, TEXT):
        config = load_mapping(sections)
        path = tmp_path / "config.yaml"
        path.write_text(to_yaml(config))
        assert load(path) == config


def test_a_configuration_that_an_earlier_version_stored_still_loads() -> None:
    """It names every key with the defaults of then, which were those of language models."""
    for sections in (PPO, SAC):
        stored: dict[str, Any] = to_mapping(load_mapping(sections))
        stored["algorithm"] |= {"gamma": 1.0, "group_size": 1}
        stored["learner"]["optimizer"]["lr"] = 1e-6
        config = load_mapping(stored)
        assert (config.learner.optimizer.lr, config.algorithm.gamma, config.algorithm.group_size) == (1e-6, 1.0, 1)


def test_interpolation_reads_the_default_of_the_kind() -> None:
    sections = {**PPO, "run": {"name": "lr${learner.optimizer.lr}"}}
    assert load_mapping(sections).run.name == "lr0.0003"


@pytest.mark.parametrize("path", RECIPES, ids=[path.stem for path in RECIPES])
def test_recipes_state_what_depends_on_the_kind_of_run(path: Path) -> None:
    """So that another default never changes a recipe."""
    reader = Reader()
    reader.read_file(path)
    written = {key for layer in reader.layers for key, _ in origins(layer)}
    tree: Branch = {}
    for layer in reader.layers:
        tree = merge(tree, layer)
    config = Builder().section(Config, Located(tree, Origin(str(path))))
    unstated = [default.key for default in CONDITIONAL if default.holds(config) and default.key not in written]
    assert set(unstated) <= {"algorithm.group_size"}
