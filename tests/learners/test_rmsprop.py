"""RMSprop is torch's bit for bit, TensorFlow's by hand, and goes on across a checkpoint."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from rlinf.learners.adam import update_ratio
from rlinf.learners.rmsprop import RMSprop

SHAPES = [(8, 4), (8,), (3, 8), (3,)]


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def give_gradients(trained: list[nn.Parameter], step: int) -> None:
    generator = torch.Generator().manual_seed(100 + step)
    for parameter in trained:
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def test_it_is_torchs() -> None:
    mine, theirs = parameters(), parameters()
    own = RMSprop(mine, lr=7e-4, smoothing=0.99, eps=1e-5)
    other = torch.optim.RMSprop(theirs, lr=7e-4, alpha=0.99, eps=1e-5)
    for step in range(5):
        give_gradients(mine, step)
        give_gradients(theirs, step)
        own.move()
        other.step()
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-7, rtol=0)


def test_the_first_two_steps_with_eps_in_the_root() -> None:
    """g = 2, then 1, smoothing 0.9, eps 0.01: v = 0.9 + 0.4 = 1.3, then 1.17 + 0.1 = 1.27."""
    weight = nn.Parameter(torch.tensor([1.0]))
    one = RMSprop([weight], lr=0.1, smoothing=0.9, eps=0.01, inside_root=True)
    wanted = 1.0
    for gradient, mean in ((2.0, 1.3), (1.0, 1.27)):
        weight.grad = torch.tensor([gradient])
        one.move()
        wanted -= 0.1 * gradient / math.sqrt(mean + 0.01)
        assert weight.item() == pytest.approx(wanted, abs=1e-6)
    moved = 0.1 / math.sqrt(1.28)
    assert update_ratio(one) == pytest.approx(moved / wanted, rel=1e-5)


@pytest.mark.parametrize("inside", [False, True])
def test_a_checkpoint_goes_on_bit_for_bit(inside: bool) -> None:
    def made(trained: list[nn.Parameter]) -> RMSprop:
        return RMSprop(trained, lr=1e-2, smoothing=0.9, eps=1e-5, inside_root=inside)

    whole, cut = parameters(), parameters()
    one, other = made(whole), made(cut)
    for step in range(4):
        if step == 2:
            saved, other = other.state_dict(), made(cut)
            other.load_state_dict(saved)
        give_gradients(whole, step)
        give_gradients(cut, step)
        one.move()
        other.move()
    assert all(torch.equal(a, b) for a, b in zip(whole, cut, strict=True))
