"""Fragments of transitions, for replay buffers and off-policy learners."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from gymnasium import spaces

from rlinf.algorithms import catalog
from rlinf.data.batch import Batch
from rlinf.data.inputs import named_inputs
from rlinf.learners.off_policy.kinds import networks_of
from rlinf.models.actor_critic import ActorCriticOptions

STATE = spaces.Box(-1, 1, (3,))
ARM = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32))


def fragment(num_envs=2, positions=20, first=0.0, ends=(), terminates=(), invalid=()):
    """Rewards count 0, 1, 2, ... in every sub-environment; observations hold the same number."""
    number = first + torch.arange(positions, dtype=torch.float32).expand(num_envs, positions)
    flags = torch.zeros(3, num_envs, positions, dtype=torch.bool)
    flags[0, :, list(terminates)] = True
    flags[1, :, list(ends)] = True
    flags[2, :, list(invalid)] = True
    return Batch(
        inputs=named_inputs(
            {
                "observation": number[..., None].repeat(1, 1, 3),
                "next_observation": number[..., None].repeat(1, 1, 3) + 1,
            }
        ),
        actions=torch.zeros(num_envs, positions, 2),
        mask=~flags[2],
        rollout_logprobs=torch.zeros(num_envs, positions),
        rewards=number,
        group_ids=torch.arange(num_envs),
        policy_version=torch.zeros(num_envs, positions, dtype=torch.int32),
        terminated=flags[0],
        truncated=flags[1],
    )


def networks(loss_type, seed=0, hidden=(16, 16), **options):
    """Those of an algorithm, for observations of three numbers."""
    torch.manual_seed(seed)
    actions = spaces.Discrete(4) if catalog.off_policy(loss_type).discrete else ARM
    kind = networks_of(loss_type, recurrent="recurrent" in options)
    return kind(STATE, actions, ActorCriticOptions(hidden_sizes=hidden, activation="relu", **options))


def soft_actor_critic(seed=0):
    return networks("sac", seed)


def remembered(policy, batch, starts):
    """The fragment as a policy with a memory played it, from no memory on; episodes begin at ``starts`` [N, T]."""
    state = torch.zeros(batch.num_rows, policy.state_size)
    return batch.replace(inputs=replace(batch.inputs, recurrent_state=state, episode_starts=starts))


def played(loss_type, **options):
    """A fragment with random observations, and actions as the algorithm takes them."""
    batch = fragment(**options)
    count = batch.actions.shape[0]
    numbers = 2 * (ActorCriticOptions().denoising_steps + 1) if loss_type == "sac_flow" else 2
    discrete = catalog.off_policy(loss_type).discrete
    actions = torch.randint(4, (count, 20)) if discrete else torch.randn(count, 20, numbers)
    return batch.replace(inputs=batch.inputs.map(torch.randn_like), actions=actions)
