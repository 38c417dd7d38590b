"""Files, bases, overrides, interpolation, and back to plain data."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import yaml
from config_cases import MINIMAL, QUICKSTART, Write, mistakes

from rlinf.config import Config, diff, load, load_mapping, to_mapping, to_yaml
from rlinf.config.names import facts_of, leaves, type_of
from rlinf.config.stored import load_stored


def test_a_file_holds_only_what_differs(minimal: Path) -> None:
    config = load(minimal)
    assert isinstance(config, Config)
    assert config.algorithm.group_size == 8
    assert config.rollout.max_new_tokens == Config().rollout.max_new_tokens
    with pytest.raises(FrozenInstanceError):
        config.run.seed = 1  # type: ignore[misc]


def test_an_earlier_run_on_a_pretrained_model_keeps_its_prompts(tmp_path: Path) -> None:
    """Its copy has no data.instruction; prompts of models made here are bare either way."""
    (tmp_path / "model.safetensors").touch()
    pretrained = {"policy": {"path": str(tmp_path), "architecture": {}}}
    for sections, instruction in ((MINIMAL, "auto"), ({**MINIMAL, **pretrained}, "never")):
        copy = to_mapping(load_mapping(sections))
        (tmp_path / "now.yaml").write_text(yaml.safe_dump(copy))
        assert load_stored(tmp_path / "now.yaml").data.instruction == "auto"
        del copy["data"]["instruction"]
        (tmp_path / "then.yaml").write_text(yaml.safe_dump(copy))
        assert load_stored(tmp_path / "then.yaml").data.instruction == instruction


def test_an_earlier_vla_run_keeps_its_vision_tower(tmp_path: Path) -> None:
    """Its copy names neither conditioning nor patch_init; one that starts from a folder never read them."""
    (tmp_path / "model.safetensors").touch()
    vision: Any = {"conditioning": "film", "patch_init": "position_independent"}
    earlier: Any = {"conditioning": "none", "patch_init": "random"}
    for path, after in ((None, earlier), (str(tmp_path), vision)):
        sections: Any = {"env": {"id": "rlinf_envs:rlinf/Tabletop-v0"}, "policy": {"name": "vla", "path": path}}
        copy: Any = to_mapping(load_mapping(sections))
        for name, expected in (("now", vision), ("then", after)):
            (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(copy))
            tower = load_stored(tmp_path / f"{name}.yaml").policy.vla.vision
            assert {key: getattr(tower, key) for key in vision} == expected
            for key in vision:
                copy["policy"]["vla"]["vision"].pop(key, None)


def test_a_run_whose_evaluations_the_command_line_switched_off_can_be_read_again(tmp_path: Path) -> None:
    """Its copy is one layer, which holds the keys of its file and the 0."""
    mapping = {**MINIMAL, "evaluation": {"every": 2, "env_kwargs": {"split": "eval"}}}
    config = load_mapping(mapping, overrides=["evaluation.size=0"])
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    again = load_stored(tmp_path / "config.yaml")
    assert again == config
    assert load_stored(tmp_path / "config.yaml", ["evaluation.size=10"]).evaluation.env_kwargs == {"split": "eval"}


def test_a_run_whose_warm_start_the_command_line_switched_off_can_be_read_again(tmp_path: Path) -> None:
    config = load_mapping({**MINIMAL, "sft": {"steps": 5, "evaluate_every": 2}}, overrides=["sft.steps=0"])
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    assert load_stored(tmp_path / "config.yaml") == config


def test_every_number_has_a_lower_bound_unless_any_is_meant() -> None:
    """A negative learning rate, capacity or number of steps would be found by a worker, or never."""
    signed = {
        "run.seed",
        "evaluation.seed",
        "policy.init_log_std",
        *(f"algorithm.{name}" for name in ("entropy_bonus", "cov_lower_bound", "cov_upper_bound")),
        *(f"algorithm.{name}" for name in ("rewards_lower_bound", "rewards_upper_bound", "sac_target_entropy")),
    }
    numbers = {key for key in leaves() if {int, float} & {type_of(key), *get_args(type_of(key))}}
    bounded = {key for key in numbers if facts_of(key).at_least is not None or facts_of(key).above is not None}
    lists = {key for key in numbers if get_origin(type_of(key)) in (list, tuple, dict)}
    assert numbers - bounded - lists == signed


def test_quickstart_is_valid_and_short() -> None:
    load(QUICKSTART)
    lines = [line for line in QUICKSTART.read_text().splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) < 25


def test_extends_lays_the_file_over_its_bases(write: Write, tmp_path: Path) -> None:
    (tmp_path / "second.yaml").write_text("rollout: {temperature: 0.7, max_new_tokens: 32}\nrun: {seed: 5}\n")
    path = tmp_path / "top.yaml"
    path.write_text("extends: [minimal.yaml, second.yaml]\nrun: {seed: 6}\n")
    config = load(path)
    assert (config.rollout.batch_size, config.rollout.temperature, config.run.seed) == (32, 0.7, 6)


def test_extends_in_a_circle_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("extends: two.yaml\n")
    (tmp_path / "two.yaml").write_text("extends: one.yaml\n")
    assert "extends goes round in a circle: one.yaml -> two.yaml -> one.yaml." in mistakes(tmp_path / "one.yaml")


def test_a_missing_base_names_the_line_and_the_nearest_file(tmp_path: Path, minimal: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("run: {seed: 1}\nextends: minimum.yaml\n")
    found = mistakes(path)
    assert f"{path}:2: " in found
    assert "does not exist. Did you mean" in found
    assert "minimal.yaml?" in found


def test_overrides_are_typed_as_in_yaml(minimal: Path) -> None:
    overrides = ["learner.optimizer.lr=1e-4", "policy.path=null", "learner.optimizer.betas=[0.9, 0.95]", "run.name=a=b"]
    config = load(minimal, overrides)
    assert config.learner.optimizer.lr == 1e-4
    assert config.policy.path is None
    assert config.learner.optimizer.betas == (0.9, 0.95)
    assert config.run.name == "a=b"


def test_numbers_without_a_dot_before_the_exponent(write: Write) -> None:
    assert load(write("learner: {optimizer: {lr: 3e-4, eps: 1E-6}}")).learner.optimizer.lr == 3e-4


def test_whole_numbers_are_accepted_for_numbers(write: Write) -> None:
    lr = load(write("learner: {optimizer: {lr: 1}}")).learner.optimizer.lr
    assert isinstance(lr, float)


def test_interpolation(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEED_OF_TEST", "7")
    path = write(
        "run: {seed: '${oc.env:SEED_OF_TEST}', name: 'seed${run.seed}'}\nrollout: {top_k: '${algorithm.group_size}'}\n"
    )
    config = load(path)
    assert (config.run.seed, config.run.name, config.rollout.top_k) == (7, "seed7", 8)


def test_an_interpolation_that_is_cut_short_is_one_problem(write: Write) -> None:
    found = mistakes(write("run: {name: a, max_steps: '${algorithm.group_size'}\n"))
    assert "run.max_steps: ${algorithm.group_size does not resolve: no valid expression" in found
    assert "must be a whole number" not in found


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("run:\n\tname: a\n", "Indent with spaces: YAML allows no tabs there."),
        ("run: {name: a, max_steps: ${run.seed}}\n", "Put the ${...} in double quotes"),
    ],
)
def test_yaml_that_is_none_shows_how_to_correct_the_line(write: Write, text: str, advice: str) -> None:
    assert advice in mistakes(write(text))


def test_interpolation_that_fails_names_its_line(write: Write) -> None:
    found = mistakes(write("run:\n  name: ${oc.env:SURELY_NOT_SET}\n"))
    assert "run.yaml:3: run.name: ${oc.env:SURELY_NOT_SET} does not resolve" in found


def test_merge_keys_and_anchors(tmp_path: Path, minimal: Path) -> None:
    path = tmp_path / "anchors.yaml"
    path.write_text("extends: minimal.yaml\nrollout: &r {temperature: 0.5}\nevaluation: {<<: *r}\n")
    assert load(path).evaluation.temperature == 0.5


def test_plain_data_and_yaml_come_back_equal(minimal: Path, tmp_path: Path) -> None:
    for extra in ([], ["algorithm.reward_norm={math: group, code: {mean: batch}}"], ["algorithm.reward_norm=batch"]):
        config = load(minimal, ["learner.optimizer.betas=[0.8,0.9]", *extra])
        assert load_mapping(to_mapping(config)) == config
        path = tmp_path / "back.yaml"
        path.write_text(to_yaml(config))
        assert load(path) == config


def test_differences(minimal: Path) -> None:
    a, b = load(minimal), load(minimal, ["rollout.batch_size=64", "env.kwargs.task=basic_arithmetic"])
    assert diff(a, a) == []
    assert diff(a, b) == ["env.kwargs.task: chain_sum -> basic_arithmetic", "rollout.batch_size: 32 -> 64"]
    c = load(minimal, ["evaluation.env_kwargs={}"])
    d = load(minimal, ["evaluation.env_kwargs={size: 1}"])
    assert diff(c, d) == ["evaluation.env_kwargs.size: (absent) -> 1"]


def test_mappings_cite_their_source() -> None:
    with pytest.raises(Exception, match=r"sweep trial 3: algorithm\.group_sise is not a key"):
        load_mapping({**MINIMAL, "algorithm": {"group_sise": 8}}, source="sweep trial 3")
