"""Policies, encoders and distributions of a user's own: checked before the run, trained end to end, resumed exactly."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces
from simulator_runs import summary

from rlinf.api.policy import Policy
from rlinf.config import load
from rlinf.config.problems import ConfigErrors
from rlinf.models.own import OwnClassError, make_own
from rlinf.train.export_checkpoint import export_checkpoint

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_policy"
PARTS = ["policy.encoder=mine:FourierFeatures", "policy.distribution=mine:LaplaceHead"]


@pytest.fixture(autouse=True)
def mine(monkeypatch):
    sys.modules.pop("mine", None)  # that of another test
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield
    sys.modules.pop("mine", None)


PENDULUM = ["env.id=Pendulum-v1", "policy.activation=tanh"]


@pytest.mark.parametrize(
    "own",
    [
        [*PARTS, "policy.encoder_options={features: 8}", "policy.distribution_options={scale: 0.3}"],
        pytest.param(
            ["policy.name=mine:LinearPolicy", "policy.options={std: 0.3}", "policy.hidden_sizes=[64, 64]"],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["parts", "whole"],
)
def test_a_run_with_own_classes_ends_with_the_weights_of_a_resumed_one(tmp_path, own):
    straight = summary(tmp_path / "straight", "ppo", 4, [*PENDULUM, *own])
    summary(tmp_path / "resumed", "ppo", 2, [*PENDULUM, *own])
    resumed = summary(tmp_path / "resumed", "ppo", 4, [*PENDULUM, *own])
    assert straight["params_sha256"] == resumed["params_sha256"]
    policy = Policy.load(tmp_path / "straight")
    exported = tmp_path / "exported"
    export_checkpoint(tmp_path / "straight", None, exported)
    observation = np.array([1.0, 0.0, 0.1], np.float32)
    assert policy.act(observation) == Policy.load(exported).act(observation)
    assert policy.spaces[1].contains(policy.act(observation))
    again = summary(
        tmp_path / "more",
        "ppo",
        1,
        [*PENDULUM, *own, f"policy.path={tmp_path}/straight/policy", "algorithm.strict=false"],
    )
    assert again["initial_metrics"]["eval/return"] == straight["metrics"]["eval/return"]


def test_an_encoder_of_ones_own_serves_off_policy_algorithms_too(tmp_path):
    own = ["policy.encoder=mine:FourierFeatures", "policy.encoder_options={features: 8}"]
    assert summary(tmp_path / "run", "sac", 3, own)["params_sha256"]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (["policy.encoder=mine:Fourier"], "policy.encoder: mine:Fourier cannot be imported"),
        (["policy.encoder=mine:FourierFeature"], r"did you mean FourierFeatures\?"),
        (
            ["policy.encoder=math:sqrt"],
            "policy.encoder: math:sqrt is a builtin_function_or_method, and must be a class",
        ),
        (
            ["policy.distribution=mine:FourierFeatures"],
            "takes 1 positional argument, and is called with the number of f",
        ),
        (["policy.name=torch.nn:Bilinear"], "requires out_features, and is called with the observation space"),
        (["policy.name=mine:LaplaceHead"], "mine:LaplaceHead lacks costs, .* which every policy of a simulator has"),
        (["policy.name=actor_citric"], "Did you mean actor_critic?"),
        (
            [PARTS[0], "policy.encoder_options={feature: 8}"],
            r"encoder_options.feature is no option .* features\?",
        ),
        ([PARTS[0], "policy.encoder_options={features: 0.5}"], "features must be a whole number, not 0.5"),
        (["policy.encoder_options={features: 8}"], "is not read by policy.encoder: auto"),
        (["policy.name=mine:LinearPolicy", "env.num_action_chunks=4"], "it decides on single actions"),
        (["policy.name=mine:LinearPolicy", "policy.init_log_std=0.1"], "is read only by simulator policies with"),
        ([*PARTS, "algorithm.loss_type=sac"], "loss_type: sac acts by a squashed_gaussian, not mine:LaplaceHead"),
        (["policy.name=mine:LinearPolicy", "algorithm.loss_type=td3"], "loss_type: td3 has networks of its own"),
    ],
)
def test_what_does_not_fit_is_reported_before_the_run(setting, message):
    with pytest.raises(ConfigErrors, match=message):
        load("pendulum_ppo", ["policy.hidden_sizes=[64, 64]", *setting])


def test_the_example_is_a_distribution():
    import mine

    torch.manual_seed(0)
    head = mine.LaplaceHead(4, spaces.Box(-2, 2, (2,)), scale=0.5)
    parameters = head(torch.randn(1, 4)).expand(100_000, 2, 2)
    drawn = head.sample(parameters, torch.rand(100_000, 2))
    wanted = torch.distributions.Laplace(parameters[0, 0], parameters[0, 1].exp())
    torch.testing.assert_close(head.log_prob(parameters, drawn), wanted.log_prob(drawn))
    torch.testing.assert_close(drawn.mean(0), wanted.mean, atol=0.02, rtol=0)
    torch.testing.assert_close(drawn.std(0), wanted.stddev, atol=0.02, rtol=0)
    assert head.to_env(np.array([[9.0, -9.0]])).tolist() == [[2.0, -2.0]]


def test_options_that_a_class_does_not_take_name_the_key():
    with pytest.raises(OwnClassError, match=r"policy\.encoder: mine:FourierFeatures cannot be made: .*width"):
        make_own("policy.encoder", "mine:FourierFeatures", {"width": 3}, spaces.Box(-1, 1, (3,)))
