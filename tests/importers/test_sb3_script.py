"""Scripts of Stable-Baselines3 as people write them: every argument arrives, or the report names it."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from rlinf_import.page import mapping, page
from rlinf_import.reading import imported
from rlinf_import.sheet import Sheet
from torch import nn

from rlinf.models.actor_critic.layers import activation_module
from rlinf.models.actor_critic.options import Activation

BEGIN = """
import gymnasium as gym
from gymnasium.wrappers import *
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "train.py"


def read(script: Path, text: str) -> Sheet:
    script.write_text(BEGIN.replace("*\nfrom stable", "RescaleAction, TimeLimit\nfrom stable") + text)
    return imported("sb3", script)


def value(sheet: Sheet, key: str) -> object:
    return sheet.settings[key].value


def decisions(sheet: Sheet) -> str:
    return "\n".join([*sheet.decide, *sheet.source.remarks])


def test_arguments_of_a_mapping_are_arguments(script: Path) -> None:
    sheet = read(script, "h = dict(n_steps=256, gamma=0.9)\nPPO('MlpPolicy', 'CartPole-v1', **h).learn(512)\n")
    assert (value(sheet, "rollout.num_steps"), value(sheet, "algorithm.gamma")) == (256, 0.9)


@pytest.mark.parametrize("name", ["Tanh", "ReLU", "SiLU", "GELU", "ELU", "LeakyReLU", "SELU", "Mish"])
def test_activations_are_those_of_torch(script: Path, name: str) -> None:
    made = f"PPO('MlpPolicy', 'CartPole-v1', policy_kwargs=dict(activation_fn=nn.{name}))"
    sheet = read(script, f"from torch import nn\nm = {made}\nm.learn(512)\n")
    ours = cast("Activation", value(sheet, "policy.activation"))
    assert type(activation_module(ours)) is getattr(nn, name)


def test_arguments_of_a_file_are_left_to_the_user(script: Path) -> None:
    made = "PPO('MlpPolicy', 'CartPole-v1', **h['ppo'], policy_kwargs=dict(**h, ortho_init=True))"
    open_decisions = decisions(read(script, f"h = load(open('h.yml'))\n{made}\n"))
    assert "**h['ppo']" in open_decisions
    assert "policy_kwargs.**h" in open_decisions


def test_arguments_by_position_arrive_or_are_named(script: Path) -> None:
    sheet = read(
        script,
        "model = PPO('MlpPolicy', 'CartPole-v1', 1e-3, 1024, 64, 4, 0.98, 0.9, 0.1)\n"
        "model.learn(100000, CheckpointCallback(5120, './logs/'))\n"
        "EvalCallback(gym.make('CartPole-v1'), None, None, 12, 1024)\n",
    )
    assert (value(sheet, "algorithm.gae_lambda"), value(sheet, "checkpoint.every")) == (0.9, 5)
    assert (value(sheet, "evaluation.size"), value(sheet, "evaluation.every")) == (12, 1)
    assert "argument 9: 0.1" in decisions(sheet)


def test_steps_of_a_loop_are_left_to_the_user(script: Path) -> None:
    learn = "model.learn(10000, reset_num_timesteps=False)"
    sheet = read(script, f"model = PPO('MlpPolicy', 'CartPole-v1')\nfor i in range(30):\n    {learn}\n")
    assert "10000, in a loop" in decisions(sheet)
    assert "run.max_steps" not in sheet.settings


def test_further_models_and_calls_of_learn_are_named(script: Path) -> None:
    text = "a = PPO('MlpPolicy', 'CartPole-v1')\na.learn(2048)\nb = SAC('MlpPolicy', 'Pendulum-v1')\nb.learn(5000)\n"
    sheet = read(script, text)
    assert (value(sheet, "env.id"), value(sheet, "run.max_steps")) == ("CartPole-v1", 1)
    assert "SAC: the model of line 8 is read" in decisions(sheet)
    assert "5000: the first call counts" in decisions(sheet)


def test_saved_statistics_begin_the_normalisation(script: Path) -> None:
    text = "env = VecNormalize.load('vec.pkl', make_vec_env('Pendulum-v1'))\nPPO('MlpPolicy', env).learn(2048)\n"
    sheet = read(script, text)
    assert (value(sheet, "env.normalize_observations"), value(sheet, "env.normalize_from")) == (True, "vec.pkl")


def test_wrappers_have_their_arguments_in_the_order_of_python(script: Path) -> None:
    script.write_text(
        BEGIN.replace("import *", "import FrameStackObservation, GrayscaleObservation, RecordVideo, ResizeObservation")
        + "from gymnasium.wrappers import TransformReward\n"
        "env = gym.make('CarRacing-v3')\n"
        "env = FrameStackObservation(GrayscaleObservation(ResizeObservation(env, (84, 84)), True), 4)\n"
        "env = RecordVideo(TransformReward(env, lambda r: 0.1 * r), 'videos')\n"
        "PPO('CnnPolicy', env).learn(2048)\n"
    )
    sheet = imported("sb3", script)
    assert value(sheet, "env.wrappers") == [
        {"gymnasium.wrappers:ResizeObservation": {"shape": [84, 84]}},
        {"gymnasium.wrappers:GrayscaleObservation": {"keep_dim": True}},
        {"gymnasium.wrappers:FrameStackObservation": {"stack_size": 4}},
        "gymnasium.wrappers:TransformReward",
    ]
    assert "TransformReward: func is known only when the script runs" in decisions(sheet)
    assert any("RecordVideo: evaluation.video_every" in line for line in sheet.ignored)
    assert page(sheet)


def test_an_evaluation_environment_that_is_wrapped_alike_adds_no_wrapper(script: Path) -> None:
    text = (
        "env = RescaleAction(gym.make('Pendulum-v1'), -1, 1)\n"
        "other = RescaleAction(gym.make('Pendulum-v1'), -1, 1)\n"
        "PPO('MlpPolicy', env).learn(2048)\n"
    )
    wrappers = mapping(read(script, text))["env"]["wrappers"]  # type: ignore[index]
    assert wrappers == [{"gymnasium.wrappers:RescaleAction": {"min_action": -1, "max_action": 1}}]


@pytest.mark.parametrize("makers", ["[make(i) for i in range(COUNT)]", "[make(0)] * 6", "[make(i) for i in range(6)]"])
def test_makers_of_environments_are_counted(script: Path, makers: str) -> None:
    text = f"COUNT = 6\ndef make(i):\n    return lambda: gym.make('CartPole-v1')\nenv = DummyVecEnv({makers})\n"
    sheet = read(script, f"{text}set_random_seed(7)\nPPO('MlpPolicy', env, n_steps=64).learn(384)\n")
    assert (value(sheet, "env.num_envs"), value(sheet, "run.max_steps"), value(sheet, "run.seed")) == (6, 1, 7)


def test_makers_that_only_the_script_counts_are_left_to_the_user(script: Path) -> None:
    text = "env = DummyVecEnv([make(i) for i in range(cpu_count())])\ngym.make('CartPole-v1')\nPPO('MlpPolicy', env)\n"
    assert "range(cpu_count())" in decisions(read(script, text))


def test_statistics_of_an_evaluation_begin_nothing(script: Path) -> None:
    text = (
        "env = VecNormalize(make_vec_env('Pendulum-v1'), norm_reward=False)\nPPO('MlpPolicy', env).learn(2048)\n"
        "VecNormalize.load('vec.pkl', make_vec_env('Pendulum-v1'))\n"
    )
    assert "env.normalize_from" not in read(script, text).settings


@pytest.mark.parametrize("first", ["training", "evaluation"])
def test_the_normalisation_is_that_of_training(script: Path, first: str) -> None:
    lines = [
        "env = VecNormalize(make_vec_env('Pendulum-v1', n_envs=4), norm_obs=True, norm_reward=True)\n",
        "held = VecNormalize(make_vec_env('Pendulum-v1'), training=False, norm_obs=False, norm_reward=False)\n",
    ]
    text = "".join(lines if first == "training" else reversed(lines))
    sheet = read(script, f"{text}PPO('MlpPolicy', env).learn(8192, callback=EvalCallback(held))\n")
    assert (value(sheet, "env.normalize_observations"), value(sheet, "env.normalize_rewards")) == (True, True)
    assert "VecNormalize" not in decisions(sheet)


def test_frames_that_a_script_stacks_twice_are_left_to_the_user(script: Path) -> None:
    text = "env = make_vec_env('Pendulum-v1')\nenv = VecFrameStack(env, 4)\n{}PPO('MlpPolicy', env).learn(2048)\n"
    sheet = read(script, text.format("env = VecFrameStack(env, 3)\n"))
    assert value(sheet, "env.frame_stack") == 4
    assert "VecFrameStack: that of line 9 is read, and this one is not" in decisions(sheet)
    assert "VecFrameStack" not in decisions(read(script, text.format("held = VecFrameStack(make_vec_env('A'), 4)\n")))


@pytest.mark.parametrize("evaluation", ["EvalCallback(held)", "None)\nevaluate_policy(model, held"])
def test_the_environment_is_that_of_training(script: Path, evaluation: str) -> None:
    text = (
        "held = make_vec_env('Pendulum-v1', n_envs=1)\nheld = VecMonitor(held)\n"
        "env = make_vec_env('CartPole-v1', n_envs=8)\nmodel = PPO('MlpPolicy', env)\n"
        f"model.learn(8192, callback={evaluation})\n"
    )
    sheet = read(script, text)
    assert (value(sheet, "env.id"), value(sheet, "env.num_envs")) == ("CartPole-v1", 8)


def test_an_environment_of_training_and_evaluation_is_read(script: Path) -> None:
    text = "env = make_vec_env('CartPole-v1', n_envs=8)\nPPO('MlpPolicy', env).learn(64, callback=EvalCallback(env))\n"
    assert value(read(script, text), "env.num_envs") == 8
