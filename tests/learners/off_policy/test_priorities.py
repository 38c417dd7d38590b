"""Prioritised replay: probabilities and weights by hand, transitions that are never drawn, resuming."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transitions import fragment

from rlinf.learners.off_policy.priorities import Priorities
from rlinf.learners.off_policy.replay_buffer import ReplayBuffer


def test_probabilities_and_weights_by_hand():
    """Errors 1, 4, 9, 16 to the power 1/2 are priorities 1, 2, 3, 4: probabilities 0.1 to 0.4.

    Weights (4 p)^-1 = 2.5, 1.25, 0.8333, 0.625, divided by the largest: 1, 1/2, 1/3, 1/4.
    """
    priorities = Priorities(4, exponent=0.5)
    priorities.add(np.arange(4), np.ones(4, dtype=bool))
    priorities.update(torch.arange(4), torch.tensor([1.0, 4.0, 9.0, 16.0]))
    drawn = priorities.draw(10_000, torch.Generator().manual_seed(0))
    assert (drawn.bincount() / 10_000).tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=1e-3)
    weights = priorities.weights(torch.arange(4), held=4, correction=1.0)
    assert weights.tolist() == pytest.approx([1.0, 1 / 2, 1 / 3, 1 / 4], rel=1e-4)
    assert priorities.largest == pytest.approx(4.0)


def test_invalid_and_empty_positions_are_never_drawn():
    priorities = Priorities(37, exponent=1.0)
    valid = np.arange(20) % 3 != 0
    priorities.add(np.arange(20), valid)
    drawn = priorities.draw(5000, torch.Generator().manual_seed(1))
    assert set(drawn.tolist()) == set(np.nonzero(valid)[0].tolist())


def test_a_buffer_gives_what_was_wrong_more_often_and_goes_on_exactly(tmp_path):
    buffer = ReplayBuffer(24, priority_exponent=1.0)  # 12 rows of 2 sub-environments: the ring wraps
    buffer.add(fragment(invalid=[15]))
    drawn = buffer.sample(4000, gamma=0.9, n_step=2, generator=torch.Generator().manual_seed(0))
    assert set(drawn.rewards.tolist()) == set(buffer.sample(4000, gamma=0.9, n_step=2).rewards.tolist())
    assert drawn.weights.unique().tolist() == [1.0]  # nothing was seen yet: all alike
    at = drawn.inputs["observation"][:, 0]
    assert set(at.tolist()) == set(range(8, 20)) - {15}
    wrong = torch.where(at == 12, 10.0, 0.1)
    buffer.prioritise(drawn.indices, wrong)
    again = buffer.sample(4000, gamma=0.9, generator=torch.Generator().manual_seed(0))
    share = (again.inputs["observation"][:, 0] == 12).float().mean()
    assert float(share) == pytest.approx(10 / (10 + 10 * 0.1), abs=0.02)
    buffer.save(tmp_path)
    back = ReplayBuffer(24, priority_exponent=1.0)
    back.load(tmp_path)
    for one in (buffer, back):
        one.add(fragment(positions=3, first=50.0))
    first, second = (
        one.sample(100, gamma=0.9, priority_correction=0.5, generator=torch.Generator().manual_seed(2))
        for one in (buffer, back)
    )
    assert first.indices.equal(second.indices)
    assert first.weights.equal(second.weights)
    assert first.rewards.equal(second.rewards)
    # what is new is as likely as the worst that was seen
    assert float((first.inputs["observation"][:, 0] >= 50).float().mean()) > 0.5
