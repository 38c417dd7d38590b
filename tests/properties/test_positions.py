"""Timesteps finer than a decision, from the environment to the weights: hand-worked columns, and nothing counted
twice."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from decisions import decide
from gymnasium import spaces
from simulator_config import simulator_config

from rlinf.algorithms.objective import Objective
from rlinf.algorithms.prepare import AlgorithmState, prepare_batch
from rlinf.data.granularity import LEVELS, Levels
from rlinf.data.inputs import ObservationInputs
from rlinf.learners.stage import Stage
from rlinf.learners.torch import TorchLearner
from rlinf.models.actor_critic import ActorCritic, ActorCriticOptions
from rlinf.rollouts.simulator.env_worker import EnvWorker
from rlinf.rollouts.simulator.episodes import EpisodeTask
from rlinf.schema import AlgorithmConfig, EnvConfig, OptimizerConfig
from rlinf.train.tracking.samples import sample_lines

close = torch.testing.assert_close
COMBINATIONS = [
    (reward, logprob) for reward in LEVELS[:2] for logprob in LEVELS if LEVELS.index(reward) <= LEVELS.index(logprob)
]


class Counting(gymnasium.Env):
    """The reward is the number of the step, the observation that of the next; the episode is over with the fifth."""

    observation_space = spaces.Box(-10, 10, (1,), np.float32)
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, truncates: bool = False) -> None:
        self.truncates, self.steps = truncates, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.ones(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        over = self.steps == 5
        ends = (over and not self.truncates, over and self.truncates)
        return np.full(1, self.steps + 1, np.float32), float(self.steps), *ends, {}


gymnasium.register("rlinf_test/Counting-v0", entry_point=Counting)


def build(observation_space, action_space, **levels):
    torch.manual_seed(0)
    options = ActorCriticOptions(hidden_sizes=(8,), num_action_chunks=2, **levels)
    return ActorCritic(observation_space, action_space, options)


def collected(layout="fragments", *, truncates=False, decisions=4, **levels):
    """The batch of one worker with one sub-environment: chunks [1, 2], [3, 4], [5, -], then (fragments) [1, 2]."""
    env = EnvConfig("rlinf_test/Counting-v0", kwargs={"truncates": truncates}, num_action_chunks=2)
    config = simulator_config(env, layout, num_steps=decisions)
    worker = EnvWorker(config.collection, range(1), partial(build, **levels))
    tasks = [EpisodeTask(0, 0, 0), EpisodeTask(1, 0, 0)] if layout == "episodes" else []
    return worker.collect(0, tasks).batch, worker._policy


def test_the_finest_positions_by_hand():
    batch, policy = collected(reward_type="action_level", logprob_type="token_level")
    assert (batch.positions_per_decision, batch.positions_per_reward, batch.num_positions) == (4, 2, 16)
    assert batch.mask.int().tolist() == [[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1]]
    assert batch.rewards.tolist() == [[1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 0, 0, 1, 0, 2, 0]]
    assert batch.terminated.nonzero()[:, 1].tolist() == [8, 9]
    assert batch.inputs.executed.int().tolist() == [[[1, 1], [1, 1], [1, 0], [1, 1]]]
    assert batch.actions.shape == (1, 4, 4)
    # the critic tells a value for each of the two actions, and both dimensions of an action have it
    close(batch.old_values[:, ::2], batch.old_values[:, 1::2])
    assert float(batch.old_values[0, 0]) != float(batch.old_values[0, 2])
    after = policy.values({"observation": torch.full((1, 1), 3.0)}, torch.zeros(1, 0))
    assert batch.bootstrap_values[0, :14].eq(0).all()
    close(batch.bootstrap_values[0, 14:], after.expand(2))


@pytest.mark.parametrize(
    ("reward", "logprob", "mask", "rewards"),
    [
        ("chunk_level", "chunk_level", [1, 1, 1, 1], [3, 7, 5, 3]),
        ("chunk_level", "action_level", [1, 1, 1, 1, 1, 0, 1, 1], [3, 0, 7, 0, 5, 0, 3, 0]),
        ("action_level", "action_level", [1, 1, 1, 1, 1, 0, 1, 1], [1, 2, 3, 4, 5, 0, 1, 2]),
    ],
)
def test_coarser_positions_by_hand(reward, logprob, mask, rewards):
    batch, _ = collected(reward_type=reward, logprob_type=logprob)
    assert batch.mask.int().tolist() == [mask]
    assert batch.rewards.tolist() == [rewards]
    assert sample_lines(batch)[0]["trace"]["reward"] == [3, 7, 5, 3]


def test_a_truncation_inside_a_chunk_bootstraps_from_the_final_observation():
    batch, policy = collected(truncates=True, reward_type="action_level", logprob_type="action_level")
    final = policy.values({"observation": torch.full((1, 1), 6.0)}, torch.zeros(1, 0))
    assert batch.truncated.nonzero()[:, 1].tolist() == [4]
    close(batch.bootstrap_values[0, 4:5], final)


@pytest.mark.parametrize(("reward", "logprob"), COMBINATIONS)
def test_advantages_are_those_of_the_rewards_own_positions(reward, logprob):
    batch, _ = collected(reward_type=reward, logprob_type=logprob)
    prepared, metrics = prepare_batch(
        batch, AlgorithmConfig(adv_type="gae", gamma=0.9, gae_lambda=0.8), AlgorithmState.of(AlgorithmConfig())
    )
    coarse = batch.by_reward()
    real = coarse.mask[0].nonzero()[:, 0].tolist()
    values, rewards = coarse.old_values[0].tolist(), coarse.rewards[0].tolist()
    expected, carried = {}, 0.0
    following = float(coarse.bootstrap_values[0, -1])
    for timestep in reversed(real):
        if coarse.terminated[0, timestep]:
            following, carried = 0.0, 0.0
        delta = rewards[timestep] + 0.9 * following - values[timestep]
        carried = delta + 0.9 * 0.8 * carried
        expected[timestep], following = carried, values[timestep]
    every = batch.positions_per_reward
    for timestep, advantage in expected.items():
        parts = slice(timestep * every, (timestep + 1) * every)
        acted = batch.mask[0, parts]
        close(prepared.advantages[0, parts][acted], torch.full((int(acted.sum()),), advantage))
        close(prepared.returns[0, parts][acted], torch.full((int(acted.sum()),), advantage + values[timestep]))
    assert prepared.advantages[~prepared.mask].eq(0).all()
    assert metrics["reward_mean"] == pytest.approx(18.0)


@pytest.mark.parametrize(("reward", "logprob"), COMBINATIONS)
def test_an_episode_is_evaluated_as_its_decisions_at_every_level(reward, logprob):
    for entropy in LEVELS:
        policy = build(
            Counting.observation_space,
            Counting.action_space,
            reward_type=reward,
            logprob_type=logprob,
            entropy_type=entropy,
        )
        observation = torch.linspace(-1, 1, 6).view(6, 1)
        actions, said, _ = decide(policy, {"observation": observation}, seed=1)
        parts = policy.granularity.positions_per_decision
        mask = torch.ones(2, 3 * parts, dtype=torch.bool)
        out = policy.evaluate(
            ObservationInputs({"observation": observation.view(2, 3, 1)}), actions.view(2, 3, 4), mask
        )
        for name in ("logprobs", "entropy", "values"):
            close(getattr(out, name).flatten(), getattr(said, name).flatten())
        if reward == "chunk_level":
            chunk = build(Counting.observation_space, Counting.action_space)
            chunk.load_state_dict(policy.state_dict())
            whole = chunk.evaluate(
                ObservationInputs({"observation": observation[:, None]}), actions[:, None], torch.ones(6, 1).bool()
            )
            close(said.logprobs.view(6, -1).sum(1), whole.logprobs[:, 0])


def test_what_was_not_carried_out_is_in_no_log_probability():
    batch, policy = collected(reward_type="action_level", logprob_type="token_level")
    coarse, _ = collected()
    close(coarse.rollout_logprobs[0], batch.rollout_logprobs.view(4, 4).sum(1))
    everything = replace(batch.inputs, executed=torch.ones(1, 4, 2).bool())
    parts = policy.evaluate(everything, batch.actions, torch.ones(1, 16).bool())
    assert batch.rollout_logprobs[0, 10:12].eq(0).all()
    assert parts.logprobs[0, 10:12].ne(0).all()


def learned(policy, batch, *, micro=1 << 20, agg="token-mean", loss="actor_critic", minibatches=1):
    """The weights after one step."""
    options = AlgorithmConfig(adv_type="gae", gamma=0.9, gae_lambda=0.8, normalize_advantages=True)
    prepared, _ = prepare_batch(batch, options, AlgorithmState.of(AlgorithmConfig()))
    objective = Objective.of(loss, loss_agg_func=agg, entropy_bonus=0.01)
    stage = Stage("train", objective, OptimizerConfig(lr=1e-2), minibatches=minibatches)
    learner = TorchLearner(policy, stages=(stage,), seed=0, micro_batch_tokens=micro)
    metrics = learner.update(prepared, step=0)
    return {name: tensor.clone() for name, tensor in policy.state_dict().items()}, metrics


def test_one_action_of_one_dimension_learns_the_same_bit_for_bit_at_every_level():
    found = []
    for level in LEVELS:
        options = ActorCriticOptions(hidden_sizes=(8,), logprob_type=level, entropy_type=level)
        worker = EnvWorker(
            simulator_config(EnvConfig("Pendulum-v1", max_episode_steps=7), num_steps=20),
            range(2),
            lambda one, other, options=options: (torch.manual_seed(0), ActorCritic(one, other, options))[1],
        )
        found.append(learned(worker._policy, worker.collect(0).batch, minibatches=3)[0])
    for other in found[1:]:
        assert all(found[0][name].equal(tensor) for name, tensor in other.items())


@pytest.mark.parametrize("agg", ["token-mean", "seq-mean-token-mean"])
@pytest.mark.parametrize(("reward", "logprob"), COMBINATIONS)
def test_micro_batches_do_not_change_the_gradient(reward, logprob, agg):
    def fresh():
        return collected(decisions=13, reward_type=reward, logprob_type=logprob, entropy_type="action_level")

    (one, first), (other, second) = (fresh(), fresh())
    whole, metrics = learned(first, one, agg=agg)
    parts, again = learned(second, other, micro=3, agg=agg)
    assert metrics["grad_norm"] == pytest.approx(again["grad_norm"], rel=1e-5)
    for name, tensor in whole.items():
        close(tensor, parts[name], rtol=0, atol=2e-5)


def test_the_critics_error_is_a_mean_over_values_not_over_the_parts_that_share_them():
    """A chunk cut after its first action has half the parts of the others, and the same say in the critic's error."""
    errors = []
    for level in LEVELS:
        batch, policy = collected(logprob_type=level)
        errors.append(learned(policy, batch)[1]["value_loss"])
    assert errors[1:] == pytest.approx([errors[0]] * 2, rel=1e-6)


@pytest.mark.parametrize(("reward", "logprob"), COMBINATIONS)
def test_whole_episodes_have_the_same_positions(reward, logprob):
    batch, _ = collected("episodes", reward_type=reward, logprob_type=logprob)
    fragment, _ = collected(decisions=3, reward_type=reward, logprob_type=logprob)
    assert batch.num_rows == 2
    assert batch.mask[:1].equal(fragment.mask)
    assert batch.rewards[:1].equal(fragment.rewards)
    assert batch.terminated[:1].equal(fragment.terminated)
    steps = batch.by_reward().reward_details.step_rewards[0]
    assert steps[~steps.isnan()].sum() == 15
    prepared, _ = prepare_batch(batch, AlgorithmConfig(adv_type="grpo_process"), AlgorithmState.of(AlgorithmConfig()))
    assert torch.isfinite(prepared.advantages).all()


def test_a_critic_of_chunks_is_not_taken_for_one_of_actions(tmp_path):
    build(Counting.observation_space, Counting.action_space).save_pretrained(str(tmp_path))
    fine = ActorCritic.from_pretrained(str(tmp_path), Levels(logprob_type="token_level"))
    assert fine.granularity.positions_per_decision == 4
    with pytest.raises(ValueError, match="tells 1 values of a decision"):
        ActorCritic.from_pretrained(str(tmp_path), Levels("action_level", "action_level"))
