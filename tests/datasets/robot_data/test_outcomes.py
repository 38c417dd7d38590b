"""Labels of outcomes: returns and advantages by hand, files that are of other episodes, and a value that finds them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlinf.datasets.robot_data.dataset import DatasetError
from rlinf.datasets.robot_data.outcomes import (
    Labels,
    labels_file,
    most_positive,
    outcome_advantages,
    outcome_returns,
    positive_frames,
    write_labels,
)
from rlinf.models.outcome_value import OutcomeValue, shared_bins
from rlinf.train.outcome_labels import Fit, label

LENGTHS, SUCCESS = np.array([3, 4]), np.array([True, False])


def test_returns_and_advantages_by_hand():
    """The longest episode has 4 steps: success after 3 is -3/4, -2/4, -1/4; a failure is -1 from the start."""
    returns = outcome_returns(LENGTHS, SUCCESS)
    assert returns.tolist() == [-0.75, -0.5, -0.25, -1.0, -1.0, -1.0, -1.0]
    values = np.array([-0.8, -0.4, -0.3, -0.5, -0.6, -0.9, -1.0])
    assert outcome_advantages(returns, values, LENGTHS).tolist() == pytest.approx(
        [0.05, -0.1, 0.05, -0.5, -0.4, -0.1, 0.0]
    )
    # Two ahead: -2/4 + V of there, where the episode goes on so far.
    ahead = outcome_advantages(returns, values, LENGTHS, 2)
    assert ahead.tolist() == pytest.approx(
        [-0.5 - 0.3 + 0.8, -0.1, 0.05, -0.5 - 0.9 + 0.5, -0.5 - 1.0 + 0.6, -0.1, 0.0]
    )
    assert most_positive(ahead, 0.4).sum() == 3


def test_bins_keep_the_mean_and_values_are_means():
    returns = torch.tensor([-1.0, -0.99, -0.337, -0.02, 0.0])
    shares = shared_bins(returns, 51)
    torch.testing.assert_close(shares @ torch.linspace(-1, 0, 51), returns)
    torch.testing.assert_close(shares.sum(1), torch.ones(5))
    value = OutcomeValue(spaces.Box(-1, 1, (2,)), 2)
    seen = {"observation": torch.randn(4, 2), "task_index": torch.tensor([0, 1, 0, 1])}
    assert ((value.values(seen) > -1) & (value.values(seen) < 0)).all()


def test_labels_of_other_episodes_are_refused(tmp_path):
    (tmp_path / "meta").mkdir()
    with pytest.raises(DatasetError, match="rlinf label FILE --data"):
        positive_frames(tmp_path, [0], np.array([3]))
    positive = np.array([True, False, False, True, True, False, True])
    write_labels(tmp_path, Labels(LENGTHS, np.zeros(7), np.zeros(7), positive))
    assert labels_file(tmp_path) == tmp_path / "meta" / "advantages.npz"
    assert positive_frames(tmp_path, [1], np.array([4])).tolist() == [True, True, False, True]
    assert positive_frames(tmp_path, [1, 0], LENGTHS).tolist() == positive.tolist()
    for episodes, lengths in (([1], [3]), ([0, 2], [3, 4])):
        with pytest.raises(DatasetError, match="of other episodes"):
            positive_frames(tmp_path, episodes, np.array(lengths))


def test_frames_of_the_better_half_are_positive():
    """Success depends on the observation alone, except in its middle: advantages are large there, after success."""
    generator = np.random.default_rng(0)
    chance = generator.choice([0.0, 0.5, 1.0], size=120)
    success = generator.random(120) < chance
    lengths = np.full(120, 4)
    frames = np.stack([np.repeat(chance, 4), np.tile(np.arange(4) / 4, 120)], axis=1)
    seen, space = {"observation": frames.astype(np.float32)}, spaces.Box(0, 1, (2,))
    fit = Fit(steps=200, batch_size=64, lr=3e-3, share=0.4, lookahead=0, seed=0)
    one, two = (label(seen, space, lengths, success, fit=fit) for _ in range(2))
    assert one.labels.advantages.tolist() == two.labels.advantages.tolist()
    assert one.explained > 0.5
    means = one.labels.advantages.reshape(120, 4).mean(1)
    open_ended, lucky = chance == 0.5, success
    assert means[open_ended & lucky].mean() > means[chance == 1.0].mean() + 0.03
    assert means[open_ended & ~lucky].mean() < means[chance == 0.0].mean() - 0.03
    with pytest.raises(DatasetError, match="same outcome"):
        label(seen, space, lengths, np.ones(120, bool), fit=fit)
