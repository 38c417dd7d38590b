"""Chunks that continue the one before."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlinf.models.vla.continuing import MOST, guided, prefix_weights
from rlinf.models.vla.flow import FlowChain


def test_weights_fall_after_what_is_carried_out() -> None:
    weights = prefix_weights(2, 5, 8)
    assert weights[:2].tolist() == [1.0, 1.0]
    assert weights[5:].tolist() == [0.0, 0.0, 0.0]
    between = np.array([0.75, 0.5, 0.25])
    assert weights[2:5].numpy() == pytest.approx(between * np.expm1(between) / (np.e - 1))
    assert prefix_weights(0, 0, 3).tolist() == [0.0, 0.0, 0.0]
    assert prefix_weights(4, 4, 4).tolist() == [1.0] * 4


def test_a_guided_flow_ends_where_the_old_chunk_goes_on() -> None:
    """The factor of each step is that of the paper: t/(1-t) (t^2 + (1-t)^2) / t^2, at most `MOST`."""
    chain = FlowChain(6, steps=10, noise_level=0.5)
    wanted, weights = torch.full((1, 6), 0.5), torch.tensor([[1.0, 1.0, 0.5, 0.0, 0.0, 0.0]])

    def speed(points: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        return points + 0.3

    start = torch.randn(1, 6, generator=torch.Generator().manual_seed(0))
    free = chain.follow(speed, 1, start)[:, -6:]
    led = chain.follow(guided(speed, wanted, weights), 1, start)[:, -6:]
    assert torch.equal(free[:, 3:], led[:, 3:])
    assert float((led[:, :2] - 0.5).abs().max()) < 0.2 * float((free[:, :2] - 0.5).abs().max())
    assert float((led[0, 2] - 0.5).abs()) < float((free[0, 2] - 0.5).abs())
    time = torch.tensor([0.5])
    moved = guided(speed, wanted, weights)(start, time) - speed(start, time)
    error = (wanted - (start - 0.5 * speed(start, time))) * weights
    assert torch.allclose(moved, -2.0 * error)
    at_first = guided(speed, wanted, weights)(start, torch.ones(1)) - speed(start, torch.ones(1))
    assert torch.allclose(at_first, -MOST * (wanted - (start - speed(start, torch.ones(1)))) * weights)
