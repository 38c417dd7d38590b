"""An action entry with equal bounds (a locked joint): every head takes and gives its one value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlinf.models.actor_critic.distributions import action_head
from rlinf.models.vla.action_bins import EvenBins, VocabularyBins
from rlinf.models.vla.flow import Bounds

LOCKED = spaces.Box(np.array([-1.0, 0.5, -2.0], np.float32), np.array([3.0, 0.5, 0.5], np.float32))
FREE = spaces.Box(np.array([-1.0, -2.0], np.float32), np.array([3.0, 0.5], np.float32))
SHOWN = np.array([[0.5, 0.5, 0.25], [2.0, 0.5, -1.0], [-0.5, 0.7, 0.0]], np.float32)
"""The last row has a recorded value that the joint cannot have."""


@pytest.mark.parametrize("distribution", ["gaussian", "squashed_gaussian", "beta"])
def test_heads_imitate_the_other_entries(distribution: Any) -> None:
    torch.manual_seed(0)
    head = action_head(4, LOCKED, distribution, -1.0)
    own = head.from_env(SHOWN)
    assert np.isfinite(own).all()
    free = action_head(4, FREE, distribution, -1.0).from_env(SHOWN[:, [0, 2]])
    assert np.array_equal(own[:, [0, 2]], free)
    features = torch.randn(3, 4, requires_grad=True)
    logprobs = head.log_prob(head(features), torch.from_numpy(own))
    logprobs.sum().backward()
    assert torch.isfinite(logprobs).all()
    assert all(torch.isfinite(weight.grad).all() for weight in head.parameters() if weight.grad is not None)
    assert head.to_env(own) == pytest.approx(np.where([False, True, False], 0.5, SHOWN), abs=1e-5)
    if distribution != "gaussian":
        middle = {"squashed_gaussian": 0.0, "beta": 0.5}[distribution]
        assert own[:, 1].tolist() == [middle] * 3


@pytest.mark.parametrize("kind", ["bins", "vocabulary", "flow"])
def test_tokens_and_flows_imitate_the_other_entries(kind: str) -> None:
    if kind == "flow":
        bounds = Bounds(LOCKED, 1)
        own = bounds.from_env(SHOWN)[:, 0]
        back, middle = bounds.to_env(own[:, None]), 0.0
    else:
        bins: Any = EvenBins(LOCKED, 257) if kind == "bins" else VocabularyBins(LOCKED, None)
        own = bins.tokens(SHOWN.astype(np.float64))
        back, middle = bins.numbers(own), 128 if kind == "bins" else 127
    assert own[:, 1].tolist() == [middle] * 3
    assert back == pytest.approx(np.where([False, True, False], 0.5, SHOWN), abs=0.02)
    assert (back[:, 1] == 0.5).all()
