"""Running mean and variance of observations, as buffers: saved with the weights and sent with them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RunningNormalizer(nn.Module):
    """Maps x to clip((x - mean) / std, +-10), with statistics over everything :meth:`observe` was given.

    Statistics change only in :meth:`observe`, never while acting or evaluating: log-probabilities of one batch are
    all computed under the same normalisation. Before the first call it is the identity.
    """

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, shape: tuple[int, ...], clip: float = 10.0) -> None:
        super().__init__()
        self.clip = clip
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, values: Tensor) -> Tensor:
        """[..., *shape] to float32 of the same shape."""
        scale = torch.rsqrt(self.variance + 1e-8).to(torch.float32)
        return ((values.to(torch.float32) - self.mean.to(torch.float32)) * scale).clamp(-self.clip, self.clip)

    @torch.no_grad()
    def observe(self, values: Tensor) -> None:
        """Merges rows [n, *shape] by Chan's formula; over all ranks where a process group is up, so they stay equal."""
        rows = values.to(torch.float64)
        moments = torch.stack([rows.sum(0), rows.square().sum(0)])
        count = torch.tensor(float(rows.shape[0]), dtype=torch.float64, device=rows.device)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(moments)
            torch.distributed.all_reduce(count)
        if float(count) == 0.0:
            return
        batch_mean = moments[0] / count
        batch_variance = (moments[1] / count - batch_mean.square()).clamp_min(0.0)
        total = self.count + count
        delta = batch_mean - self.mean
        merged = self.variance * self.count + batch_variance * count + delta.square() * self.count * count / total
        self.mean += delta * count / total
        self.variance.copy_(merged / total)
        self.count.copy_(total)
