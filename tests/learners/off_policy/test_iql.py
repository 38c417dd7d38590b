"""IQL: losses by hand, one update written out, and offline runs that take no environment step and go on exactly."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from simulator_runs import summary
from transitions import networks, played

from rlinf.base.random_streams import torch_generator
from rlinf.cli import main
from rlinf.config import ConfigErrors, load
from rlinf.learners.off_policy.iql import advantage_weights, expectile_loss
from rlinf.learners.off_policy.offline import OfflineLearner
from rlinf.learners.off_policy.replay_buffer import ReplayBuffer
from rlinf.schema import AlgorithmConfig, OptimizerConfig

OPTIONS = {"loss_type": "iql", "gamma": 0.9, "replay_batch_size": 8, "target_tau": 0.1, "offline_updates": 2}


def recorded():
    """Forty transitions in one row, with actions in [-1, 1]."""
    batch = played("iql", num_envs=1, ends=[4], terminates=[9])
    return batch.replace(actions=torch.tanh(batch.actions))


def make(data, seed=0, **options):
    algorithm = AlgorithmConfig(**{**OPTIONS, **options})
    return OfflineLearner(networks("iql", seed), algorithm, OptimizerConfig(lr=1e-2), seed=3, recorded=data)


def test_expectile_and_weights_by_hand():
    """u = 2 and -1 at 0.9: 0.9 * 4 and 0.1 * 1. Weights at beta 2: e^1, e^-2, and 3 for what is e^4."""
    assert expectile_loss(torch.tensor([2.0, -1.0]), 0.9).tolist() == pytest.approx([3.6, 0.1])
    found = advantage_weights(torch.tensor([0.5, -1.0, 2.0]), 2.0, 3.0)
    assert found.tolist() == pytest.approx([float(np.exp(1.0)), float(np.exp(-2.0)), 3.0])


def test_one_update_is_the_published_one_written_out():
    """arXiv:2110.06169, algorithm 1: V by the expectile, the actor by its advantages, Q by V, then the target."""
    data = recorded()
    learner = make(data, offline_updates=1, expectile=0.8, awr_beta=2.0, awr_cap=1.05)
    policy = networks("iql")
    target = copy.deepcopy(policy)
    metrics = learner.update(data, step=0)

    buffer = ReplayBuffer(40)
    buffer.add(data)
    drawn = buffer.sample(8, gamma=0.9, generator=torch_generator(3, "iql", 0))
    value, actor, critic = (
        torch.optim.Adam(parameters, lr=1e-2)
        for parameters in (policy.parameters_of_value(), policy.parameters_of_actor(), policy.parameters_of_critic())
    )
    kept = target.judge(drawn.inputs, drawn.actions).amin(0).detach()
    error = kept - policy.state_values(drawn.inputs)
    ((0.8 - (error < 0).float()).abs() * error**2).mean().backward()
    value.step()
    with torch.no_grad():
        weights = (2.0 * (kept - policy.state_values(drawn.inputs))).exp().clamp(max=1.05)
        goal = drawn.rewards + drawn.discounts * policy.state_values(drawn.next_inputs)
    mean, log_std = policy.distribution(drawn.inputs).unbind(1)
    density = torch.distributions.Normal(mean, log_std.exp()).log_prob(drawn.actions).sum(1)
    (-(weights * density).mean()).backward()
    actor.step()
    loss = 0.5 * ((policy.judge(drawn.inputs, drawn.actions) - goal) ** 2).mean(1).sum()
    loss.backward()
    critic.step()
    assert metrics["critic_loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert metrics["awr_capped_fraction"] == pytest.approx(float((weights == 1.05).float().mean()))
    for name, tensor in learner.policy.named_parameters():
        torch.testing.assert_close(tensor, policy.get_parameter(name), rtol=1e-3, atol=1e-5)
    moved = dict(learner.objective.target.modules[1].named_parameters())
    for name, tensor in policy.critic.named_parameters():
        wanted = 0.9 * target.critic.get_parameter(name) + 0.1 * tensor
        torch.testing.assert_close(moved[name], wanted, rtol=1e-3, atol=1e-5)


def test_it_goes_on_exactly_without_the_transitions_in_its_checkpoint(tmp_path):
    data = recorded()
    straight, resumed = make(data), make(data, seed=9)
    straight.update(data, step=0)
    straight.save(tmp_path)
    resumed.load(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["learner.pt"]
    assert straight.update(data, step=1) == resumed.update(data, step=1)
    one, two = (learner.weights(version=1).tensors for learner in (straight, resumed))
    assert all(one[name].equal(two[name]) for name in one)


def test_actions_of_the_bounds_are_kept_as_they_are():
    head = networks("iql").head
    given = np.array([[2.0, 0.0], [-2.0, 1.0], [0.5, 0.25]], np.float32)
    assert head.from_env(given)[:2].tolist() == [[1.0, -1.0], [-1.0, 1.0]]
    np.testing.assert_allclose(head.to_env(head.from_env(given)), given, atol=1e-6)


@pytest.fixture(scope="module")
def episodes(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pendulum")
    file = folder / "record.yaml"
    file.write_text("env: {id: Pendulum-v1, max_episode_steps: 20}\npolicy: {name: actor_critic}\n")
    command = ["record", str(file), "--expert", "rlinf_envs.sim.pendulum:mixed_expert", "--keep-failures"]
    assert main([*command, "--to-the-end", "--episodes", "6", "--out", str(folder / "set")]) == 0
    return folder / "set"


def test_a_run_takes_no_environment_step_and_goes_on_exactly(tmp_path, episodes):
    data = [f"algorithm.prior_data={episodes}"]
    straight = summary(tmp_path / "straight", "iql", 3, data)
    summary(tmp_path / "resumed", "iql", 2, data)
    assert summary(tmp_path / "resumed", "iql", 3, data)["params_sha256"] == straight["params_sha256"]
    lines = [json.loads(line) for line in (tmp_path / "resumed" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["rollout/env_steps_total"] == 0
    assert (lines[-1]["train/updates"], lines[-1]["train/replay_size"]) == (6, 120)
    assert lines[-1]["eval/return"] < 0


@pytest.mark.slow
def test_ray_gives_what_one_process_gives(tmp_path, episodes, ray_session):
    data = [f"algorithm.prior_data={episodes}"]
    here = summary(tmp_path / "here", "iql", 2, data)
    there = summary(tmp_path / "there", "iql", 2, [*data, "cluster.backend=ray"])
    assert there["params_sha256"] == here["params_sha256"]


def test_what_an_offline_run_does_not_read_is_named(tmp_path):
    file = tmp_path / "iql.yaml"
    file.write_text("env: {id: Pendulum-v1}\npolicy: {name: actor_critic}\nalgorithm: {loss_type: iql}\n")
    wrong = {
        "algorithm.expectile": 1.0,
        "algorithm.replay_start": 5,
        "algorithm.sac_alpha": 0.1,
        "rollout.num_steps": 32,
        "env.normalize_rewards": "true",
    }
    with pytest.raises(ConfigErrors) as caught:
        load(file, [f"{key}={value}" for key, value in wrong.items()])
    assert {problem.key for problem in caught.value.problems} == {*wrong, "algorithm.prior_data"}
