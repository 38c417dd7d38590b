"""Actions by diffusion, as OpenVLA-OFT's: noise becomes a chunk in S steps, each one pass of the language model.

The schedule is DDIM's (arXiv:2010.02502) with squared cosines (arXiv:2102.09672), and numbers without noise are cut at
-1 and 1. Acting draws noise at each step but the last one, whose size is ``noise_level`` times DDPM's; so a decision
is the whole chain of S + 1 points, and its log-probability is exact (DDPO, arXiv:2305.13301).

N rows, H actions of A numbers each, of which K are carried out; a chain is [N, (S + 1) H A].
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rlinf.models.actor_critic.distributions import LOG_SQRT_2PI
from rlinf.models.vla.observation import noise_of
from rlinf.models.vla.options import VlaOptions
from rlinf.models.vla.published.openvla_actions import ActionsOfSpace
from rlinf.models.vla.published.openvla_network import Embedded, OpenVlaNetwork

_OFFSET, _LARGEST_BETA = 0.008, 0.999


@dataclass(frozen=True)
class Denoising:
    """The context of N decisions by diffusion."""

    network: OpenVlaNetwork
    embedded: Embedded
    per_action: int
    seeds: list[int]
    """Of each row, from its observation: greedy chains begin with noise of them."""

    def __len__(self) -> int:
        return len(self.embedded.valid)

    def noise(self, points: Tensor, steps: Tensor) -> Tensor:
        """Predict the noise [N, H A] in points [N, H A] at steps [N]."""
        return self.network.noise(self.embedded, points, steps, self.per_action)


class ChunkDenoising(nn.Module):
    """Chains that end in a chunk of actions."""

    noise_kind = "normal"
    action_dtype: type[np.generic] = np.float32
    kept: Tensor

    def __init__(
        self,
        actions: ActionsOfSpace,
        per_action: int,
        options: VlaOptions,
        *,
        horizon: int,
        steps: int,
        trained_steps: int,
        noise_level: float,
    ) -> None:
        """Take ``steps`` of the ``trained_steps``, evenly."""
        super().__init__()
        self._actions, self._chunk, self._level = actions, options.num_action_chunks, noise_level
        self._largest = 1.0
        self.per_action, self.horizon, self.numbers = per_action, horizon, horizon * per_action
        stride = trained_steps // steps
        self.timesteps = [number * stride for number in reversed(range(steps))]
        self._stride = stride
        self.register_buffer("kept", squared_cosines(trained_steps), persistent=False)
        self.noise_size = (steps + 1) * self.numbers
        self._drawn = self.numbers + 1
        # One number more, which nothing reads, where an action to imitate would be as long as a chain.
        self.imitation_noise = self._drawn + int(self.numbers + self._drawn == self.noise_size)
        self.action_shape: tuple[int, ...] = (self.noise_size,)

    def sample(self, context: Denoising, noise: Tensor) -> Tensor:
        """Chains [N, (S + 1) H A] of as much noise."""
        drawn = noise.unflatten(1, (-1, self.numbers))
        points = [drawn[:, 0]]
        for number in range(len(self.timesteps)):
            mean, deviation = self._step(context, points[-1], number, noisy=True)
            points.append(mean + deviation * drawn[:, number + 1])
        return torch.cat(points, dim=1)

    def mode(self, context: Denoising) -> Tensor:
        """Chains without noise on the way, from noise that follows from each row's observation."""
        return self.followed(context, noise_of(context.seeds, self.numbers).to(self.kept.device))

    def followed(self, context: Denoising, noise: Tensor) -> Tensor:
        """Chains without noise on the way that begin with noise [N, H A]."""
        points = [noise]
        for number in range(len(self.timesteps)):
            points.append(self._step(context, points[-1], number, noisy=False)[0])
        return torch.cat(points, dim=1)

    def log_prob(self, context: Denoising, actions: Tensor) -> Tensor:
        """Log-probability of each number of the chunk [N, K A]: those of its steps, added up.

        Actions to imitate, with their noise, have minus half the squared error of the noise instead.
        """
        if actions.shape[1] != self.noise_size:
            return self._taken(self._matching(context, actions))
        points = actions.unflatten(1, (-1, self.numbers)).unbind(1)
        total = torch.zeros_like(points[0])
        for number, (before, after) in enumerate(itertools.pairwise(points[:-1])):
            mean, deviation = self._step(context, before, number, noisy=True)
            total = total - 0.5 * ((after - mean) / deviation).square() - deviation.log() - LOG_SQRT_2PI
        return self._taken(total)

    def entropy(self, context: Denoising) -> Tensor:
        """Entropy of each number's steps [N, K A]: no weight moves it."""
        each = [self._deviation(number).log() + 0.5 + LOG_SQRT_2PI for number in range(len(self.timesteps) - 1)]
        return torch.stack(each).sum().expand(len(context), self._chunk * self.per_action)

    def to_env(self, chains: np.ndarray) -> np.ndarray:
        """Return the ends of chains as actions [N, A], with chunks [N, K, A]."""
        ends = chains[:, -self.numbers :].reshape(len(chains), self.horizon, self.per_action)
        return self._actions.to_env(ends[:, : self._chunk])

    def from_env(self, actions: np.ndarray) -> np.ndarray:
        """[N, H A]: K actions, continued by the last of them."""
        known = self._actions.from_env(actions)
        whole = np.concatenate([known, np.repeat(known[:, -1:], self.horizon - known.shape[1], axis=1)], axis=1)
        return whole.reshape(len(known), self.numbers).astype(np.float32)

    def _step(self, context: Denoising, points: Tensor, number: int, *, noisy: bool) -> tuple[Tensor, Tensor]:
        """Mean [N, H A] of the next points, and their standard deviation []."""
        now = self.timesteps[number]
        noise = context.noise(points, torch.full((len(points),), now, device=points.device))
        kept, next_kept = self.kept[now], self._next_kept(number)
        clean = ((points - (1.0 - kept).sqrt() * noise) / kept.sqrt()).clamp(-self._largest, self._largest)
        deviation = self._deviation(number) if noisy else torch.zeros_like(kept)
        mean = next_kept.sqrt() * clean + (1.0 - next_kept - deviation.square()).clamp(min=0.0).sqrt() * noise
        return mean, deviation

    def _next_kept(self, number: int) -> Tensor:
        later = self.timesteps[number] - self._stride
        return self.kept[later] if later >= 0 else torch.ones_like(self.kept[0])

    def _deviation(self, number: int) -> Tensor:
        kept, next_kept = self.kept[self.timesteps[number]], self._next_kept(number)
        return self._level * ((1.0 - next_kept) / (1.0 - kept) * (1.0 - kept / next_kept)).sqrt()

    def _matching(self, context: Denoising, imitated: Tensor) -> Tensor:
        """[N, H A] of ``imitated``: actions, then noise and a normal number that decides on the step."""
        action, noise, normal = imitated[:, : self.numbers + self._drawn].split([self.numbers, self.numbers, 1], dim=1)
        steps = (torch.special.ndtr(normal[:, 0]) * len(self.kept)).long().clamp(max=len(self.kept) - 1)
        kept = self.kept[steps][:, None]
        noisy = kept.sqrt() * action + (1.0 - kept).sqrt() * noise
        return -0.5 * (context.noise(noisy, steps) - noise).square()

    def _taken(self, numbers: Tensor) -> Tensor:
        """[N, H A] to the [N, K A] that are carried out."""
        return numbers[:, : self._chunk * self.per_action]


def squared_cosines(steps: int) -> Tensor:
    """Return what is kept of the variance of clean numbers [steps] after each step of noise."""

    def share(time: float) -> float:
        return math.cos((time + _OFFSET) / (1.0 + _OFFSET) * math.pi / 2.0) ** 2

    betas = [min(1.0 - share((number + 1) / steps) / share(number / steps), _LARGEST_BETA) for number in range(steps)]
    return torch.cumprod(1.0 - torch.tensor(betas, dtype=torch.float32), dim=0)
