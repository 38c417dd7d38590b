"""Chunks by diffusion: the schedule, the density of a chain, and what imitation minimises."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlinf.models.vla import VlaOptions
from rlinf.models.vla.published.openvla_actions import ActionsOfSpace, TrainedUnits
from rlinf.models.vla.published.openvla_diffusion import ChunkDenoising, squared_cosines

_ENDS = {"q01": [-1.0, -1.0], "q99": [1.0, 1.0]}


@dataclass(frozen=True)
class Known:
    """A context whose clean numbers are known: its noise is what is left of a point."""

    clean: torch.Tensor
    head: ChunkDenoising
    seeds: tuple[int, ...] = (3, 4)

    def __len__(self) -> int:
        return len(self.clean)

    def noise(self, points: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        kept = self.head.kept[steps][:, None]
        return (points - kept.sqrt() * self.clean) / (1.0 - kept).sqrt()


def head_of(**changed: Any) -> ChunkDenoising:
    space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    units = TrainedUnits(_ENDS, "quantiles", "action")
    actions = ActionsOfSpace(space, units, chunk=2, gripper="as_trained")
    given = {"horizon": 3, "steps": 5, "trained_steps": 50, "noise_level": 1.0, **changed}
    return ChunkDenoising(actions, 2, VlaOptions(language={}, vision=None, num_action_chunks=2), **given)


def test_less_is_kept_at_each_step_of_a_squared_cosine() -> None:
    kept = squared_cosines(50)
    expected = [math.cos(((at + 1) / 50 + 0.008) / 1.008 * math.pi / 2) ** 2 for at in range(49)]
    expected = [value / math.cos(0.008 / 1.008 * math.pi / 2) ** 2 for value in expected]
    assert np.abs(kept[:-1].numpy() - expected).max() <= 1e-5
    assert 0 < float(kept[-1]) < 1e-3


def test_steps_are_spread_over_those_that_were_trained() -> None:
    assert head_of().timesteps == [40, 30, 20, 10, 0]
    assert head_of(steps=7).timesteps == [42, 35, 28, 21, 14, 7, 0]


def test_a_chain_ends_in_the_clean_numbers() -> None:
    head = head_of()
    clean = torch.tensor([[0.5, -0.2, 0.1, 0.9, -0.9, 0.0]] * 2)
    context = Known(clean, head)
    for chains in (head.mode(context), head.sample(context, torch.randn(2, head.noise_size))):
        assert torch.allclose(chains[:, -head.numbers :], clean, atol=1e-4)
    assert np.allclose(head.to_env(chains.numpy())[0], [[0.5, -0.2], [0.1, 0.9]], atol=1e-4)
    assert head.from_env(np.array([[[0.5, -0.2], [0.1, 0.9]]])) == pytest.approx(
        np.array([[0.5, -0.2, 0.1, 0.9, 0.1, 0.9]]), abs=1e-6
    )


def test_numbers_without_noise_are_cut() -> None:
    head = head_of()
    chains = head.mode(Known(torch.full((2, head.numbers), 1.7), head))  # type: ignore[arg-type]
    assert torch.allclose(chains[:, -head.numbers :], torch.ones(2, head.numbers), atol=1e-4)


def test_the_log_probability_is_the_density_of_the_noise_that_was_drawn() -> None:
    """Sum over the steps with noise: the standard normal density of the noise, over its size at the step."""
    head = head_of(noise_level=0.7)
    context = Known(torch.zeros(2, head.numbers), head)
    noise = torch.randn(2, head.noise_size, generator=torch.Generator().manual_seed(0))
    drawn = noise.unflatten(1, (-1, head.numbers))[:, 1:-1]
    sizes = []
    for now, later in zip(head.timesteps[:-1], head.timesteps[1:], strict=True):
        kept, following = float(head.kept[now]), float(head.kept[later])
        sizes.append(0.7 * math.sqrt((1 - following) / (1 - kept) * (1 - kept / following)))
    expected = (-0.5 * drawn.square() - 0.5 * math.log(2 * math.pi)).sum(1) - sum(math.log(size) for size in sizes)
    found = head.log_prob(context, head.sample(context, noise))  # type: ignore[arg-type]
    assert torch.allclose(found, expected[:, :4], atol=1e-3)
    entropy = len(sizes) * 0.5 * math.log(2 * math.pi * math.e) + sum(math.log(size) for size in sizes)
    assert torch.allclose(head.entropy(context), torch.full((2, 4), entropy), atol=1e-4)  # type: ignore[arg-type]


def test_imitation_is_the_squared_error_of_the_noise() -> None:
    head = head_of()
    clean = torch.rand(2, head.numbers) - 0.5
    imitated = torch.cat([clean, torch.randn(2, head.imitation_noise)], dim=1)
    assert float(head.log_prob(Known(clean, head), imitated).abs().max()) <= 1e-4  # type: ignore[arg-type]
    off = Known(clean + 0.1, head)
    step = int(torch.special.ndtr(imitated[0, 2 * head.numbers]) * 50)
    share = float(head.kept[step] / (1.0 - head.kept[step]))
    assert float(head.log_prob(off, imitated)[0, 0]) == pytest.approx(-0.5 * 0.01 * share, rel=1e-2)  # type: ignore[arg-type]
