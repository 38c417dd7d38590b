"""Bare kernels give torch's own numbers, bit for bit, also across a checkpoint."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from rlinf.learners.adam import Adam, clip_gradients, gradient_norm

SHAPES = [(64, 4), (64,), (3, 64), (3,), ()]


def parameters(dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return [nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in SHAPES]


def with_gradients(trained: list[nn.Parameter], step: int) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(100 + step)
    for parameter in trained:
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
    return trained


def groups(trained: list[nn.Parameter]) -> list[dict[str, Any]]:
    return [{"params": trained[:3]}, {"params": trained[3:], "lr": 1e-2}]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("decoupled", "peer"), [(True, torch.optim.AdamW), (False, torch.optim.Adam)])
def test_move_is_torchs_step(decoupled: bool, peer: Callable[..., torch.optim.Adam], dtype: torch.dtype) -> None:
    mine, theirs = parameters(dtype), parameters(dtype)
    options: dict[str, Any] = {"lr": 3e-3, "betas": (0.9, 0.95), "eps": 1e-6, "weight_decay": 0.1, "fused": True}
    own = Adam(groups(mine), decoupled_weight_decay=decoupled, **options)
    other = peer(groups(theirs), **options)
    for step in range(6):
        if step == 3:  # a checkpoint of one continues with the other
            saved, own = own.state_dict(), Adam(groups(mine), decoupled_weight_decay=decoupled, **options)
            own.load_state_dict(saved)
        for group in (*own.param_groups, *other.param_groups):
            group["lr"] *= 0.9
        with_gradients(mine, step)
        with_gradients(theirs, step)
        own.move()
        other.step()
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    assert other.state_dict()["state"].keys() == own.state_dict()["state"].keys()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("limit", [0.5, 1e6])
def test_norm_and_clipping_are_torchs(limit: float, dtype: torch.dtype) -> None:
    mine, theirs = (with_gradients(parameters(dtype), 0) for _ in range(2))
    norm = gradient_norm([parameter.grad for parameter in mine if parameter.grad is not None])
    clip_gradients(mine, limit, norm)
    assert torch.equal(norm, nn.utils.clip_grad_norm_(theirs, limit))
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(mine, theirs, strict=True) if a.grad is not None)


ONE_STEP = """
import sys, torch, rlinf.learners.torch
from rlinf.learners.adam import Adam, update_ratio
weight = torch.nn.Parameter(torch.ones(3))
one = Adam([weight], lr=0.1, fused=True)
weight.grad = torch.ones(3)
one.move()
one.load_state_dict(one.state_dict())
one.move()
assert update_ratio(one) > 0
print(*(name for name in ("torch._dynamo", "torch.distributed.tensor", "sympy", "transformers") if name in sys.modules))
"""


def test_a_learner_imports_neither_the_compiler_nor_shards() -> None:
    done = subprocess.run([sys.executable, "-c", ONE_STEP], capture_output=True, text=True, check=True, timeout=120)
    assert not done.stdout.strip()
