"""SAC's networks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from decisions import decide
from gymnasium import spaces

from rlinf.data.inputs import named_inputs
from rlinf.models.actor_critic import ActorCriticOptions
from rlinf.models.off_policy.soft_actor_critic import SoftActorCritic

STATE = spaces.Box(-1, 1, (3,))
ARM = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32))


def make_policy(seed=0):
    torch.manual_seed(seed)
    return SoftActorCritic(STATE, ARM, ActorCriticOptions(hidden_sizes=(16, 16), activation="relu"))


def test_an_episode_is_evaluated_as_its_decisions_one_by_one():
    policy = make_policy()
    inputs = {"observation": torch.randn(6, 3)}
    actions, output, _ = decide(policy, inputs, seed=0)
    whole = {"observation": inputs["observation"].unflatten(0, (2, 3))}
    again = policy.evaluate(named_inputs(whole), actions.unflatten(0, (2, 3)), torch.ones(2, 3, dtype=torch.bool))
    torch.testing.assert_close(again.logprobs.flatten(), output.logprobs.flatten())
    assert all(ARM.contains(action) for action in policy.env_actions(actions.numpy()))
    with pytest.raises(TypeError, match="continuous"):
        SoftActorCritic(STATE, spaces.Discrete(2), ActorCriticOptions())


def test_a_chunk_is_one_action_of_all_its_dimensions():
    """With K = 2 actor and critics are those of a space of 2 x 2 numbers; a part left out has no probability."""
    torch.manual_seed(0)
    options = ActorCriticOptions(hidden_sizes=(16,), activation="relu", num_action_chunks=2)
    chunked = SoftActorCritic(STATE, ARM, options)
    torch.manual_seed(0)
    joint = spaces.Box(np.tile(ARM.low, 2), np.tile(ARM.high, 2))
    flat = SoftActorCritic(STATE, joint, dataclasses.replace(options, num_action_chunks=1))
    inputs = {"observation": torch.randn(5, 3)}
    one, two = (decide(policy, inputs, seed=1) for policy in (chunked, flat))
    assert one[0].equal(two[0])
    assert one[1].logprobs.equal(two[1].logprobs)
    given = chunked.env_actions(one[0].numpy())
    assert given.shape == (5, 2, 2)
    np.testing.assert_array_equal(given.reshape(5, 4), flat.env_actions(two[0].numpy()))
    rows = {"observation": inputs["observation"][:, None]}
    mask = torch.ones(5, 1, dtype=torch.bool)
    whole = chunked.evaluate(named_inputs(rows), one[0][:, None], mask)
    torch.testing.assert_close(whole.logprobs, one[1].logprobs)
    executed = torch.tensor([True, False]).expand(5, 1, 2)
    part = chunked.evaluate(named_inputs({**rows, "executed": executed}), one[0][:, None], mask)
    parameters = flat.distribution(inputs)
    torch.testing.assert_close(part.logprobs[:, 0], flat.head.log_prob(parameters, two[0])[:, :2].sum(-1))
    assert chunked.judge(inputs, one[0]).equal(flat.judge(inputs, two[0]))
