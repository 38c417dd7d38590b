"""Entries of RL Zoo's files as people change them: numbers as text, schedules, wrappers of vector environments."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlinf_import.reading import imported
from rlinf_import.sheet import Sheet

from rlinf.base.errors import UserError


def entry(folder: Path, text: str, algorithm: str = "ppo") -> Sheet:
    file = folder / f"{algorithm}.yml"
    file.write_text(f"CartPole-v1: {{policy: MlpPolicy, n_timesteps: 100000, {text}}}\n")
    return imported("sb3", file)


@pytest.mark.parametrize(
    ("text", "rate", "schedule"),
    [("'1e-3'", 1e-3, None), ("lin_2e-4", 2e-4, "linear"), ("!!float 3e-4", 3e-4, None), ("5e-4", 5e-4, None)],
)
def test_a_rate_is_read_in_every_form(tmp_path: Path, text: str, rate: float, schedule: str | None) -> None:
    sheet = entry(tmp_path, f"learning_rate: {text}, n_envs: '4'")
    assert sheet.value("learner.optimizer.lr") == rate
    assert sheet.value("learner.optimizer.schedule") == schedule
    assert sheet.value("env.num_envs") == 4


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("Reacher-v2", "Reacher-v4"), ("HumanoidStandup-v3", "HumanoidStandup-v4"), ("Ant-v4", "Ant-v4")],
)
def test_a_version_that_gymnasium_has_given_up_is_the_one_after_it(tmp_path: Path, theirs: str, ours: str) -> None:
    (tmp_path / "ppo.yml").write_text(f"{theirs}: {{policy: MlpPolicy, n_timesteps: 100000}}\n")
    sheet = imported("sb3", tmp_path / "ppo.yml")
    assert sheet.value("env.id") == ours
    assert any(ours in line for line in sheet.differs) == (theirs != ours)


@pytest.mark.parametrize("text", ["lin_abc", "const_0.001", "linear_schedule(0.2)"])
@pytest.mark.parametrize("key", ["learning_rate", "clip_range"])
def test_another_schedule_is_left_to_the_user(tmp_path: Path, key: str, text: str) -> None:
    assert any(f"{key}: {text}: " in line for line in entry(tmp_path, f"{key}: {text}").decide)


def test_wrappers_of_the_vector_environment_are_translated_or_named(tmp_path: Path) -> None:
    vec_env = "stable_baselines3.common.vec_env"
    listed = f"[{{{vec_env}.VecFrameStack: {{n_stack: 3}}}}, {vec_env}.VecMonitor, my.VecShift]"
    sheet = entry(tmp_path, f"vec_env_wrapper: {listed}")
    assert (sheet.value("env.frame_stack"), sheet.value("env.frame_padding")) == (3, "zero")
    assert any("VecMonitor" in line for line in sheet.ignored)
    assert any("VecShift wraps all environments together" in line for line in sheet.decide)


def test_frames_that_are_stacked_twice_are_left_to_the_user(tmp_path: Path) -> None:
    stack = "{stable_baselines3.common.vec_env.VecFrameStack: {n_stack: 3}}"
    for key in ("vec_env_wrapper", "env_wrapper"):
        sheet = entry(tmp_path, f"frame_stack: 4, {key}: {stack}")
        assert (sheet.value("env.frame_stack"), sheet.value("env.frame_padding")) == (4, "zero")
        assert [line for line in sheet.decide if "stacked a second time" in line and key in line]
        assert entry(tmp_path, f"{key}: {stack}").value("env.frame_stack") == 3


def test_a_share_of_zero_stays_zero(tmp_path: Path) -> None:
    assert entry(tmp_path, "exploration_fraction: 0.0", "dqn").value("algorithm.epsilon_steps") == 1


def test_no_wrapper_is_none(tmp_path: Path) -> None:
    assert "env.wrappers" not in entry(tmp_path, "env_wrapper: null, vec_env_wrapper: null").settings


def test_a_file_without_entries_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ppo.yml").write_text("# nothing yet\n")
    with pytest.raises(UserError, match="holds no environment"):
        imported("sb3", tmp_path / "ppo.yml")


@pytest.mark.parametrize("name", ["tanh", "nn.LeakyReLU", "leaky_relu", "'relu'"])
def test_activations_are_read_in_every_spelling(tmp_path: Path, name: str) -> None:
    ours = {"nn.LeakyReLU": "leaky_relu"}.get(name, name.strip("'"))
    assert entry(tmp_path, f'policy_kwargs: "dict(activation_fn={name})"').value("policy.activation") == ours


@pytest.mark.parametrize("file", ["config.yml", "args.yml"])
def test_what_the_zoo_writes_into_the_folder_of_a_run_is_read(tmp_path: Path, file: str) -> None:
    tag = "!!python/object/apply:collections.OrderedDict\n- - - "
    (tmp_path / "args.yml").write_text(f"{tag}algo\n    - a2c\n  - - env\n    - Pendulum-v1\n")
    (tmp_path / "config.yml").write_text(f"{tag}gamma\n    - 0.9\n  - - learning_rate\n    - lin_0.001\n")
    sheet = imported("sb3", tmp_path / file)
    read = [
        sheet.value(key)
        for key in ("env.id", "algorithm.gamma", "learner.optimizer.schedule", "learner.optimizer.name")
    ]
    assert read == ["Pendulum-v1", 0.9, "linear", "rmsprop"]
