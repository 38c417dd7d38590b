"""Positions of chunked actions."""

from __future__ import annotations

import pytest
import torch

from rlinf.algorithms import aggregate
from rlinf.data.granularity import LEVELS, Granularity

close = torch.testing.assert_close

# one row, two chunks of two actions of three dimensions; the episode ends with the first action of the second chunk
MASK = torch.tensor([[[True, True], [True, False]]])
LOGPROBS = torch.arange(12.0).view(1, 2, 2, 3)


@pytest.mark.parametrize(
    ("level", "logprobs", "mask"),
    [
        ("chunk_level", [15.0, 21.0], [1, 1]),
        ("action_level", [3.0, 12.0, 21.0, 0.0], [1, 1, 1, 0]),
        ("token_level", [*range(9), 0, 0, 0], [1] * 9 + [0] * 3),
    ],
)
def test_log_probabilities_and_masks(level, logprobs, mask):
    positions = Granularity(actions=2, dimensions=3, logprob_type=level)
    close(positions.logprobs(LOGPROBS, MASK), torch.tensor([logprobs]).float())
    assert positions.mask(MASK).tolist() == [[bool(value) for value in mask]]


def test_rewards_and_flags():
    rewards = torch.tensor([[[1.0, 2.0], [3.0, float("nan")]]])
    ends = torch.tensor([[[False, False], [True, True]]])
    chunk = Granularity(actions=2, dimensions=3)
    action = Granularity(actions=2, dimensions=3, reward_type="action_level", logprob_type="action_level")
    close(chunk.rewards(rewards, MASK), torch.tensor([[3.0, 3.0]]))
    close(action.rewards(rewards, MASK), torch.tensor([[1.0, 2.0, 3.0, 0.0]]))
    assert chunk.reward_mask(ends & MASK).tolist() == [[False, True]]
    assert action.reward_mask(ends & MASK).tolist() == [[False, False, True, False]]
    assert action.reward_mask(MASK).tolist() == [[True, True, True, False]]


@pytest.mark.parametrize("level", LEVELS)
def test_a_broadcast_advantage_keeps_its_mean_over_real_positions(level):
    positions = Granularity(actions=2, dimensions=3, logprob_type=level)
    advantages = positions.spread(torch.full((1, 2), 5.0))
    close(aggregate("token-mean", advantages, positions.mask(MASK)), torch.tensor(5.0))


@pytest.mark.parametrize("level", LEVELS)
def test_entropy_is_spread_or_averaged_over_the_positions_of_the_loss(level):
    entropy = torch.ones(1, 2, 2, 3)
    for other in LEVELS:
        positions = Granularity(actions=2, dimensions=3, logprob_type=other, entropy_type=level)
        found = positions.entropy(entropy, MASK)
        assert found.shape == positions.mask(MASK).shape
        size = {"token_level": 1.0, "action_level": 3.0, "chunk_level": 6.0}[level]
        assert float(found[0, 0]) == size


def test_levels_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="reward_type action_level is finer than logprob_type chunk_level"):
        Granularity(actions=2, dimensions=3, reward_type="action_level")
    with pytest.raises(ValueError, match="reward_type must be one of chunk_level, action_level"):
        Granularity(actions=2, dimensions=3, reward_type="token_level")
    with pytest.raises(ValueError, match="entropy_type must be one of"):
        Granularity(actions=2, dimensions=3, entropy_type="row")
