"""Legal actions: exact probabilities among them, none outside of them, for each policy that has discrete actions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlinf.data.inputs import named_inputs
from rlinf.data.spaces import ACTION_MASK, SpaceError
from rlinf.models.actor_critic import ActorCritic, ActorCriticOptions
from rlinf.models.actor_critic.distributions import mask_illegal
from rlinf.models.off_policy.discrete_soft import DiscreteSoftActorCritic
from rlinf.models.off_policy.q_network import QNetwork
from rlinf.models.off_policy.soft_actor_critic import SoftActorCritic

SEEN = "observation.seen"
OPTIONS = ActorCriticOptions(hidden_sizes=(8,), action_mask="legal")
KINDS = (ActorCritic, QNetwork, DiscreteSoftActorCritic)


def observed(count: int) -> spaces.Dict:
    return spaces.Dict({"seen": spaces.Box(-1, 1, (3,)), "action_mask": spaces.MultiBinary(count)})


def made(kind, options=OPTIONS):
    torch.manual_seed(0)
    return kind(observed(4), spaces.Discrete(4), options)


@pytest.mark.parametrize("kind", KINDS)
def test_only_legal_actions_are_drawn_and_their_probabilities_add_up(kind):
    """Rows with 1, 2 and 3 legal actions of 4; of a policy that would take the illegal ones otherwise."""
    policy, rows = made(kind), 3000
    legal = torch.tensor([[0, 0, 1, 0], [1, 0, 0, 1], [1, 1, 0, 1]], dtype=torch.int8).repeat(rows, 1)
    leaves = {SEEN: torch.randn(3, 3).repeat(rows, 1), ACTION_MASK: legal}
    if isinstance(policy, QNetwork):
        policy.head.epsilon.fill_(0.5)
    state = torch.zeros(3 * rows, policy.state_size)
    noise = torch.rand(3 * rows, policy.noise_size)
    actions, _ = policy.step(leaves, state, noise)
    assert legal.gather(1, actions[:, None].long()).all()
    greedy, _ = policy.step(leaves, state, None)
    assert legal.gather(1, greedy[:, None].long()).all()

    three = {name: leaf[:3, None] for name, leaf in leaves.items()}
    shares = []
    for action in range(4):
        given = torch.full((3, 1), action)
        found = policy.evaluate(named_inputs(three), given, torch.ones(3, 1, dtype=torch.bool))
        shares.append(found.logprobs[:, 0].exp())
    table = torch.stack(shares, dim=1)
    assert (table[legal[:3] == 0] == 0).all()
    torch.testing.assert_close(table.sum(1), torch.ones(3))
    expected = -torch.where(table > 0, table * table.clamp_min(1e-30).log(), 0.0).sum(1)
    torch.testing.assert_close(found.entropy[:, 0], expected, atol=1e-5, rtol=1e-4)
    drawn = torch.stack([(actions.view(rows, 3) == action).float().mean(0) for action in range(4)], dim=1)
    assert (drawn - table).abs().max() < 4 * math.sqrt(0.25 / rows)


def test_illegal_logits_get_no_gradient_and_legal_ones_that_of_a_smaller_softmax():
    """Softmax of logits 1 and 3 alone: d log p_0 = (1 - p_0, -p_0 ...) with p_0 = 1 / (1 + e^2)."""
    logits = torch.tensor([[1.0, 7.0, 3.0]], requires_grad=True)
    mask_illegal(logits, torch.tensor([[1, 0, 1]])).log_softmax(-1)[0, 0].backward()
    share = 1 / (1 + math.e**2)
    assert logits.grad[0].tolist() == pytest.approx([1 - share, 0.0, share - 1], abs=1e-6)


def test_parts_of_an_action_have_masks_of_their_own():
    torch.manual_seed(0)
    policy = ActorCritic(observed(5), spaces.MultiDiscrete([3, 2]), OPTIONS)
    legal = torch.tensor([[0, 1, 0, 1, 0]]).repeat(50, 1)
    leaves = {SEEN: torch.randn(50, 3), ACTION_MASK: legal}
    actions, _ = policy.step(leaves, torch.zeros(50, 0), torch.rand(50, policy.noise_size))
    assert actions.unique(dim=0).tolist() == [[1, 0]]


def test_the_mask_is_no_number_for_the_encoder():
    policy = made(ActorCritic)
    assert policy.encoder.out_features == 3
    leaves = {SEEN: torch.randn(2, 3)}
    values = [
        policy.values({**leaves, ACTION_MASK: torch.full((2, 4), number)}, torch.zeros(2, 0)) for number in (0, 1)
    ]
    assert values[0].equal(values[1])


def test_an_exported_policy_masks_too(tmp_path):
    policy = made(ActorCritic)
    policy.save_pretrained(str(tmp_path))
    back = ActorCritic.from_pretrained(str(tmp_path))
    leaves = {SEEN: torch.randn(9, 3), ACTION_MASK: torch.tensor([[0, 1, 0, 0]]).repeat(9, 1)}
    assert back.step(leaves, torch.zeros(9, 0), None)[0].tolist() == [1] * 9


@pytest.mark.parametrize("kind", [ActorCritic, SoftActorCritic])
def test_continuous_actions_have_no_mask(kind):
    box = spaces.Box(np.float32(-1), np.float32(1), (2,))
    with pytest.raises(SpaceError, match=r"env\.action_mask needs"):
        kind(observed(2), box, OPTIONS)


def test_dqn_s_targets_take_the_best_legal_action():
    """All values of the next state are known: 5 is illegal, so y = 1 + 0.9 x 2."""
    from rlinf.learners.off_policy.learner import OffPolicyLearner
    from rlinf.learners.off_policy.replay_buffer import Transitions
    from rlinf.schema import AlgorithmConfig, OptimizerConfig

    for double in (False, True):
        policy = made(QNetwork)
        algorithm = AlgorithmConfig(loss_type="dqn", double_q=double)
        learner = OffPolicyLearner(policy, algorithm, OptimizerConfig(lr=1e-3), seed=0)
        values = torch.tensor([2.0, 5.0, 1.0, 0.0])
        with torch.no_grad():
            for layer in (policy.head.advantages, learner.objective.target.modules[2].advantages):
                layer.weight.zero_()
                layer.bias.copy_(values)
        state = {SEEN: torch.zeros(1, 3), ACTION_MASK: torch.tensor([[1, 0, 1, 1]])}
        drawn = Transitions(state, torch.zeros(1).long(), torch.ones(1), state, torch.tensor([0.9]))
        assert learner.objective.wanted(drawn).tolist() == pytest.approx([2.8])
