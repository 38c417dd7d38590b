"""gSDE: against Stable-Baselines3's distribution on the same weights, its moments, and how long noise is held."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces
from simulator_runs import summary

from rlinf.config import ConfigErrors, load_mapping
from rlinf.data.spaces import SpaceError
from rlinf.models.actor_critic import ActorCritic, ActorCriticOptions
from rlinf.models.actor_critic.state_dependent import (
    SoftStateDependentNoiseHead,
    SquashedStateDependentNoiseHead,
    StateDependentNoiseHead,
)
from rlinf.models.off_policy.soft_actor_critic import SoftActorCritic
from rlinf.models.policy_requests import PolicyFacts, drive
from rlinf.rollouts.simulator.episodes import EpisodeCollector, EpisodeTask
from rlinf.rollouts.simulator.fragments import FragmentCollector
from rlinf.rollouts.vec_env.sync import SyncVecEnv
from rlinf.schema import EnvConfig

FEATURES, ACTIONS, ROWS = 5, 3, 7
BOX = spaces.Box(-2.0, 2.0, (ACTIONS,), np.float32)
HEADS = [StateDependentNoiseHead, SquashedStateDependentNoiseHead, SoftStateDependentNoiseHead]


def made(kind: type[StateDependentNoiseHead], init_log_std: float = -1.0) -> StateDependentNoiseHead:
    torch.manual_seed(0)
    head = kind(FEATURES, BOX, init_log_std)
    with torch.no_grad():
        head.mean.weight.copy_(torch.randn(ACTIONS, FEATURES))
        head.log_std.add_(0.3 * torch.randn(FEATURES, ACTIONS))
    return head


@pytest.mark.peers
@pytest.mark.parametrize("kind", HEADS)
def test_the_distribution_is_that_of_stable_baselines3(kind: type[StateDependentNoiseHead]) -> None:
    """Samples of the same exploration matrix, log-probabilities, entropies, and gradients of all weights."""
    peer = pytest.importorskip("stable_baselines3.common.distributions")
    head, squashed = made(kind), kind is not StateDependentNoiseHead
    theirs = peer.StateDependentNoiseDistribution(ACTIONS, squash_output=squashed, learn_features=head.learns_features)
    theirs.proba_distribution_net(FEATURES)
    matrix = torch.randn(ROWS, FEATURES, ACTIONS)
    noise = torch.cat([matrix, torch.zeros(ROWS, 1, ACTIONS)], dim=1).flatten(1)
    results = []
    for side in ("ours", "theirs"):
        features = torch.linspace(-1, 1, ROWS * FEATURES).view(ROWS, FEATURES).requires_grad_()
        head.zero_grad()
        if side == "ours":
            parameters = head(features)
            sample = head.sample(parameters, noise)
            logprob = head.log_prob(parameters, sample.detach()).sum(-1)
            entropy = head.entropy(parameters).sum(-1)
            shown = torch.tanh(sample) if squashed else sample
        else:
            mean = head.mean(features)
            if head.mean_bound is not None:
                mean = torch.nn.functional.hardtanh(mean, -head.mean_bound, head.mean_bound)
            theirs.proba_distribution(mean, head.log_std, features)
            theirs.exploration_matrices = head.log_std.exp() * matrix
            shown = theirs.sample()
            logprob = theirs.log_prob(shown.detach())
            entropy = theirs.distribution.entropy().sum(-1)
        (logprob.sum() + shown.square().sum()).backward()
        gradients = [weight.grad.clone() for weight in (features, head.log_std, head.mean.weight, head.mean.bias)]
        results.append([shown.detach(), logprob.detach(), entropy.detach(), *gradients])
    ours, other = results
    for number, (one, two) in enumerate(zip(ours, other, strict=True)):
        if number == 2 and squashed:
            continue  # theirs has no entropy after the tanh
        # Theirs adds 1e-6 in the logarithm of the tanh's slope.
        torch.testing.assert_close(one, two, rtol=2e-3 if squashed else 1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", HEADS)
def test_samples_have_the_moments_of_the_log_probability(kind: type[StateDependentNoiseHead]) -> None:
    head, count = made(kind), 200_000
    parameters = head(torch.linspace(-1, 1, FEATURES)[None])
    mean, log_std = head.moments(parameters)
    generator = torch.Generator().manual_seed(1)
    drawn = head.sample(parameters.expand(count, -1), torch.randn(count, head.noise_size, generator=generator))
    torch.testing.assert_close(
        drawn.mean(0), mean[0], rtol=0, atol=6 * float(log_std.detach().exp().max()) / math.sqrt(count)
    )
    torch.testing.assert_close(drawn.std(0), log_std.exp()[0], rtol=0.01, atol=0)
    assert head.draw_size == ACTIONS


def test_ppo_leaves_the_features_alone_and_sac_learns_them() -> None:
    for kind, learned in ((StateDependentNoiseHead, False), (SoftStateDependentNoiseHead, True)):
        head, features = made(kind), torch.ones(1, FEATURES, requires_grad=True)
        head.moments(head(features))[1].sum().backward()
        assert (features.grad is not None and bool(features.grad.any())) == learned


@pytest.mark.parametrize("make", [ActorCritic, SoftActorCritic])
def test_an_exported_policy_acts_the_same(make: type[ActorCritic | SoftActorCritic], tmp_path: Path) -> None:
    seen = spaces.Box(-1, 1, (4,), np.float32)
    options = ActorCriticOptions(hidden_sizes=(8,), use_sde=True, sde_sample_freq=4, init_log_std=-2.0)
    policy = make(seen, BOX, options)
    assert (policy.noise_hold, policy.noise_size) == (4, 9 * ACTIONS)
    policy.save_pretrained(str(tmp_path))
    loaded = make.from_pretrained(str(tmp_path))
    observations, state = {"observation": torch.rand(2, 4)}, torch.zeros(2, 0)
    noise = torch.randn(2, policy.noise_size)
    assert loaded.step(observations, state, noise)[0].equal(policy.step(observations, state, noise)[0])


def test_other_actions_are_refused() -> None:
    options = ActorCriticOptions(use_sde=True)
    with pytest.raises(SpaceError, match="use_sde needs continuous actions"):
        ActorCritic(spaces.Box(-1, 1, (4,)), spaces.Discrete(3), options)


@pytest.mark.parametrize(
    ("algorithm", "policy", "message"),
    [
        ({"loss_type": "td3"}, {"use_sde": True}, "has no normal actions"),
        ({"loss_type": "sac"}, {"sde_sample_freq": 4}, "is not read without policy.use_sde"),
        ({"loss_type": "sac"}, {"use_sde": True, "sde_sample_freq": 0}, "is no number of decisions"),
        ({"adv_type": "gae", "loss_type": "actor_critic"}, {"use_sde": True, "distribution": "beta"}, "not of policy"),
    ],
)
def test_wrong_keys_are_named(algorithm: dict[str, object], policy: dict[str, object], message: str) -> None:
    sections = {"env": {"id": "Pendulum-v1"}, "algorithm": algorithm, "policy": {"name": "actor_critic", **policy}}
    with pytest.raises(ConfigErrors, match=message):
        load_mapping(sections)


def test_the_first_deviation_is_small_for_an_off_policy_actor() -> None:
    made_of = {}
    for loss in ({"loss_type": "sac"}, {"adv_type": "gae", "loss_type": "actor_critic"}):
        sections = {"env": {"id": "Pendulum-v1"}, "algorithm": loss, "policy": {"name": "actor_critic"}}
        sections["policy"]["use_sde"] = True  # type: ignore[assignment]
        made_of[loss["loss_type"]] = load_mapping(sections).policy.init_log_std
    assert made_of == {"sac": -3.0, "actor_critic": 0.0}


@pytest.mark.parametrize(("kind", "steps"), [("fragments", 12), ("episodes", 200)])
@pytest.mark.parametrize("hold", [-1, 5, 1])
def test_noise_is_held(kind: str, steps: int, hold: int) -> None:
    """A policy that reads nothing else than its noise acts alike for as many decisions, then otherwise."""
    env = SyncVecEnv(EnvConfig(id="Pendulum-v1"), 2)
    policy = ActorCritic(
        env.observation_space, env.action_space, ActorCriticOptions((4,), use_sde=True, sde_sample_freq=hold)
    )
    torch.nn.init.zeros_(policy.actor_body[0].weight)
    torch.nn.init.ones_(policy.actor_body[0].bias)
    facts = PolicyFacts.of(policy)
    if kind == "fragments":
        collector = FragmentCollector(env, range(2), seed=0, num_steps=steps)
        columns = collector.open(facts, (0,))
        drive(collector.fill(columns, 0), policy)
        actions = columns.actions[:, :, 0].T
    else:
        episodes = EpisodeCollector(env, seed=0)
        ran = episodes.run(policy, [EpisodeTask(row, row, 7) for row in range(2)], 0)
        actions = np.stack([episode.actions[:, 0] for episode in ran.episodes])
    changes = np.flatnonzero(np.diff(actions[0])) + 1
    assert changes.tolist() == ([] if hold < 0 else list(range(hold, steps, hold)))
    assert actions[0, 0] != actions[1, 0]


@pytest.mark.parametrize("kind", ["ppo_normalised", pytest.param("sac", marks=pytest.mark.slow)])
def test_runs_resume_bit_for_bit(kind: str, tmp_path: Path) -> None:
    settings = ["policy.use_sde=true", "policy.sde_sample_freq=8"]
    straight = summary(tmp_path / "straight", kind, 3, settings)
    for steps in (2, 3):
        resumed = summary(tmp_path / "resumed", kind, steps, settings)
    assert straight["params_sha256"] == resumed["params_sha256"]
