"""Actions by a flow: noise becomes a chunk of actions in S steps along a learned velocity (arXiv:2410.24164).

Time runs from 1 (noise) to 0 (the action); x_t = t e + (1 - t) a, whose velocity is e - a. While collecting, each step
of length d adds noise such that the marginals stay those of the flow (Flow-SDE of pi_RL, arXiv:2510.25889, after
Flow-GRPO, arXiv:2505.05470):

    a' = x - t v,  e' = x + (1 - t) v
    x_{t-d} ~ Normal((1 - t + d) a' + (t - d - s^2 d / (2 t)) e',  d s^2),   s = noise_level sqrt(t / (1 - t))

with the first step's 1 - t taken at the second time. So a decision is the whole chain of S + 1 points, and its
log-probability is exact: the sum over the steps. (The first point has a density that no weight moves.)

N rows, K actions of A numbers each; a chain is [N, (S + 1) K A]. Numbers are in [-1, 1] between the space's bounds.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlinf.data.spaces import SpaceError, share_of_bounds
from rlinf.models.actor_critic.distributions import LOG_SQRT_2PI

_FREQUENCIES = 8  # of the sines and cosines that tell the time
_CONTEXT = 64  # numbers that each action's query gives to the velocity
_TIME_POWER = 1.5  # imitation draws t from Beta(1.5, 1): rather noise than action, as published
_LEAST_TIME = 1e-3

Speed = Callable[[Tensor, Tensor], Tensor]


class FlowChain(nn.Module):
    """Chains of ``numbers`` numbers in ``steps`` steps; ``speed(points [N, n], times [N])`` is the velocity [N, n].

    Imitation matches the flow at ``draws`` random points of each action.
    """

    times: Tensor
    deviations: Tensor

    def __init__(self, numbers: int, *, steps: int, noise_level: float, draws: int = 1) -> None:
        super().__init__()
        self.numbers, self.steps, self.draws = numbers, steps, draws
        self.noise_size = (steps + 1) * numbers
        self._points = draws * (numbers + 1)
        # One number more, which is not read, if an action to imitate would be as long as a chain.
        self.imitation_noise = self._points + int(numbers + self._points == self.noise_size)
        times = torch.linspace(1.0, 0.0, steps + 1, dtype=torch.float64)
        left = torch.where(times == 1.0, 1.0 - times[1], 1.0 - times)[:-1]
        deviations = noise_level * torch.sqrt(times[:-1] / left)
        self.register_buffer("times", times.float(), persistent=False)
        self.register_buffer("deviations", deviations.float(), persistent=False)

    def _step(self, speed: Speed, points: Tensor, number: int, *, noisy: bool) -> tuple[Tensor, Tensor]:
        """Mean [N, n] of the next points, and their standard deviation []."""
        now, length = self.times[number], self.times[number] - self.times[number + 1]
        velocity = speed(points, now.expand(len(points)))
        action, noise = points - now * velocity, points + (1.0 - now) * velocity
        deviation = self.deviations[number] if noisy else self.deviations[number] * 0.0
        remaining = now - length
        mean = (1.0 - remaining) * action + (remaining - deviation.square() * length / (2.0 * now)) * noise
        return mean, length.sqrt() * deviation

    def draw(self, speed: Speed, noise: Tensor) -> Tensor:
        """Chains [N, (S + 1) n] of standard normal numbers [N, (S + 1) n]."""
        drawn = noise.unflatten(1, (self.steps + 1, self.numbers))
        points = [drawn[:, 0]]
        for number in range(self.steps):
            mean, deviation = self._step(speed, points[-1], number, noisy=True)
            points.append(mean + deviation * drawn[:, number + 1])
        return torch.cat(points, dim=1)

    def follow(self, speed: Speed, rows: int, start: Tensor | None = None) -> Tensor:
        """Chains [N, (S + 1) n] without any noise on the way, from ``start`` [N, n] (None: from zeros)."""
        points = [self.times.new_zeros(rows, self.numbers) if start is None else start]
        for number in range(self.steps):
            points.append(self._step(speed, points[-1], number, noisy=False)[0])
        return torch.cat(points, dim=1)

    def log_prob(self, speed: Speed, actions: Tensor) -> Tensor:
        """Log-probability of each number of a chain [N, n]: its steps' log-probabilities, added up.

        Actions to imitate, with their noise ([N, n + `imitation_noise`]), have minus half the squared error of the
        velocity instead: flow matching.
        """
        if actions.shape[1] != self.noise_size:
            return self._matching(speed, actions)
        points = actions.unflatten(1, (self.steps + 1, self.numbers)).unbind(1)
        total = torch.zeros_like(points[0])
        for number, (before, after) in enumerate(itertools.pairwise(points)):
            mean, deviation = self._step(speed, before, number, noisy=True)
            total = total - 0.5 * ((after - mean) / deviation).square() - deviation.log() - LOG_SQRT_2PI
        return total

    def _matching(self, speed: Speed, imitated: Tensor) -> Tensor:
        """``imitated`` [N, n + draws (n + 1)]: actions, then of each draw noise and a normal number that decides on
        the time."""
        action, drawn = imitated[:, : self.numbers], imitated[:, self.numbers : self.numbers + self._points]
        errors = [self._error(speed, action, draw) for draw in drawn.chunk(self.draws, dim=1)]
        return errors[0] if self.draws == 1 else torch.stack(errors).mean(0)

    def _error(self, speed: Speed, action: Tensor, drawn: Tensor) -> Tensor:
        """[N, n] at one draw [N, n + 1]."""
        noise, normal = drawn.split([self.numbers, 1], dim=1)
        uniform = torch.special.ndtr(normal)
        times = _LEAST_TIME + (1.0 - _LEAST_TIME) * uniform.pow(1.0 / _TIME_POWER)
        points = times * noise + (1.0 - times) * action
        return -0.5 * (speed(points, times[:, 0]) - (noise - action)).square()

    def entropy(self, rows: int) -> Tensor:
        """Entropy of each number's steps [N, n]: no weight moves it."""
        lengths = self.times[:-1] - self.times[1:]
        each = (lengths.sqrt() * self.deviations).log() + 0.5 + LOG_SQRT_2PI
        return each.sum().expand(rows, self.numbers)


class Bounds:
    """Numbers in [-1, 1] between the bounds of a Box, and back. SpaceError for other actions."""

    def __init__(self, space: spaces.Space, chunk: int) -> None:
        if not isinstance(space, spaces.Box) or not np.isfinite(space.low).all() or not np.isfinite(space.high).all():
            raise SpaceError(f"policy.name: flow needs a Box of finite bounds, got {space}: bound it by a wrapper")
        self._space, self._chunk = space, chunk
        self._low = space.low.reshape(-1).astype(np.float64)
        self._high = space.high.reshape(-1).astype(np.float64)
        self.per_action = len(self._low)

    def to_env(self, numbers: np.ndarray) -> np.ndarray:
        """[N, K, A] as actions [N, *shape], with chunks [N, K, *shape]."""
        actions = self._low + 0.5 * (np.clip(numbers, -1.0, 1.0) + 1.0) * (self._high - self._low)
        lead = (len(numbers),) if self._chunk == 1 else (len(numbers), self._chunk)
        return actions.reshape(*lead, *self._space.shape).astype(self._space.dtype)

    def from_env(self, actions: np.ndarray) -> np.ndarray:
        """Actions [N, *shape] or [N, K, *shape] as [N, K, A]."""
        parts = np.asarray(actions, dtype=np.float64).reshape(len(actions), self._chunk, self.per_action)
        return (2.0 * share_of_bounds(parts, self._low, self._high) - 1.0).astype(np.float32)


class FlowHead(nn.Module):
    """Chains of numbers of a chunk, along a velocity that follows from a decision's context (of N decisions)."""

    noise_kind = "normal"
    action_dtype: type[np.generic] = np.float32
    chain: FlowChain
    noise_size: int
    per_action: int
    action_shape: tuple[int, ...]

    def speed(self, context: Any, points: Tensor, times: Tensor) -> Tensor:
        """Compute the velocity [N, n] at points [N, n] and times [N]."""
        raise NotImplementedError

    def carried_out(self, numbers: Tensor) -> Tensor:
        """[N, n] of a chain to the [N, K A] that are carried out: all."""
        return numbers

    def speed_of(self, context: Any) -> Speed:
        """Return the velocity as a function of points and times."""
        return functools.partial(self.speed, context)

    def sample(self, context: Any, noise: Tensor) -> Tensor:
        """Chains [N, (S + 1) n] of as much noise."""
        return self.chain.draw(self.speed_of(context), noise)

    def mode(self, context: Any) -> Tensor:
        """Noiseless chains."""
        return self.chain.follow(self.speed_of(context), len(context))

    def followed(self, context: Any, noise: Tensor) -> Tensor:
        """Noiseless chains [N, (S + 1) n] that begin with noise [N, n]."""
        return self.chain.follow(self.speed_of(context), len(context), noise)

    def log_prob(self, context: Any, actions: Tensor) -> Tensor:
        """Log-probability of each number of the chunk [N, K A]; see :meth:`FlowChain.log_prob`."""
        return self.carried_out(self.chain.log_prob(self.speed_of(context), actions))

    def entropy(self, context: Any) -> Tensor:
        """Entropy of each number [N, K A]."""
        return self.carried_out(self.chain.entropy(len(context)))


class ActionFlow(FlowHead):
    """Hidden states [N, K, H] at the action queries to a context [N, C], and chains of that context."""

    def __init__(
        self,
        width: int,
        space: spaces.Space,
        *,
        chunk: int,
        steps: int,
        noise_level: float,
        hidden: int,
        draws: int = 1,
        guidance: float = 1.0,
    ) -> None:
        """``guidance``: how far velocities go from those of the second half of a context of 2 C numbers to the
        first's."""
        bounds = Bounds(space, chunk)
        super().__init__()
        self._bounds, self.per_action, self.count = bounds, bounds.per_action, chunk
        self.numbers, self._guidance = chunk * bounds.per_action, guidance
        self.chain = FlowChain(self.numbers, steps=steps, noise_level=noise_level, draws=draws)
        self.noise_size, self.imitation_noise = self.chain.noise_size, self.chain.imitation_noise
        self.action_shape: tuple[int, ...] = (self.noise_size,)
        self.project = nn.Linear(width, _CONTEXT)
        inputs = self.numbers + chunk * _CONTEXT + 2 * _FREQUENCIES
        self.velocity = nn.Sequential(
            nn.Linear(inputs, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, self.numbers)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        return self.project(hidden.float()).flatten(1)

    def speed(self, context: Tensor, points: Tensor, times: Tensor) -> Tensor:
        """Compute the velocity [N, K A] at points [N, K A] and times [N]."""
        if context.shape[1] == 2 * self.count * _CONTEXT:
            positive, without = (self.speed(half, points, times) for half in context.chunk(2, dim=1))
            return without + self._guidance * (positive - without)
        angles = times[:, None] * (2.0 ** torch.arange(_FREQUENCIES, device=times.device)) * math.pi
        velocity: Tensor = self.velocity(torch.cat([points, context, angles.sin(), angles.cos()], dim=1))
        return velocity

    def to_env(self, chains: np.ndarray) -> np.ndarray:
        """Return the ends of chains as actions [N, *shape], with chunks [N, K, *shape]."""
        return self._bounds.to_env(chains[:, -self.numbers :].reshape(len(chains), self.count, self.per_action))

    def from_env(self, actions: np.ndarray) -> np.ndarray:
        """Actions [N, *shape] or [N, K, *shape] as numbers in [-1, 1], [N, K A]."""
        return self._bounds.from_env(actions).reshape(len(actions), self.numbers)
