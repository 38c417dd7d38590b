"""Rewards divided by the running standard deviation of the discounted return, sub-environment by sub-environment."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rlinf.data.batch import Batch
from rlinf.data.vec_normalize import Moments

_CLIP = 10.0


class RewardNormalizer:
    """Scales, does not shift: a shift would change which policy is best if episodes can end early.

    The discounted return of a sub-environment goes on from fragment to fragment and restarts after an episode's
    end.
    """

    def __init__(self, gamma: float) -> None:
        self._gamma = gamma
        self._mean, self._m2, self._count = 0.0, 0.0, 0.0
        self._running: torch.Tensor | None = None  # [B] discounted return of every sub-environment

    def begin_with(self, returns: Moments) -> None:
        """Take over statistics of the discounted return."""
        self._mean, self._count = float(returns.mean), returns.count
        self._m2 = float(returns.variance) * returns.count

    def __call__(self, batch: Batch) -> Batch:
        """Add rewards [B, T] to the statistics, then scale them."""
        whole, batch = batch, batch.by_reward()
        rewards = torch.where(batch.mask, batch.rewards, 0.0).double()
        ended = torch.zeros_like(batch.mask)
        for flag in (batch.terminated, batch.truncated):
            ended = ended if flag is None else ended | flag
        returns = torch.empty_like(rewards)
        running = np.zeros(batch.num_rows)
        if self._running is not None and len(self._running) == batch.num_rows:
            running = self._running.numpy()
        # In numpy: a timestep is a few hundred numbers, and calling torch for them takes longer than adding them up.
        by_time = zip(rewards.numpy().T, ended.numpy().T, returns.numpy().T, strict=True)
        for reward, over, discounted in by_time:
            discounted[:] = running = self._gamma * running + reward
            running = np.where(over, 0.0, running)
        self._running = torch.from_numpy(running)
        self._merge(returns[batch.mask])
        scale = max((self._m2 / max(self._count, 1.0)) ** 0.5, 1e-4)
        scaled = torch.where(whole.mask, whole.rewards, 0.0).double() / scale
        return whole.replace(rewards=scaled.clamp(-_CLIP, _CLIP).float())

    def _merge(self, values: torch.Tensor) -> None:
        """Chan's formula for two sets of numbers."""
        if not len(values):
            return
        count, mean = float(len(values)), float(values.mean())
        total = self._count + count
        delta = mean - self._mean
        self._m2 += float((values - mean).square().sum()) + delta * delta * self._count * count / total
        self._mean += delta * count / total
        self._count = total

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self._mean, "m2": self._m2, "count": self._count, "running": self._running}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._mean, self._m2, self._count = state["mean"], state["m2"], state["count"]
        self._running = state["running"]
