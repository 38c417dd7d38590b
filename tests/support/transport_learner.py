"""A learner of given weights, for tests of the ways from it to samplers.

It imports no model: a process of it starts in half the time.
"""

from __future__ import annotations

import torch

from rlinf.cluster import RankInfo
from rlinf.data.messages import WeightUpdate
from rlinf.train.workers.learner_worker import LearnerWorker

Weights = dict[str, torch.Tensor]


def weights_of(base: Weights, version: int) -> Weights:
    """Move the weights a little, to other values for each version."""
    generator = torch.Generator().manual_seed(version)
    return {name: tensor + 0.05 * torch.randn(tensor.shape, generator=generator) for name, tensor in base.items()}


class Learner:
    """A rank of a learner whose weights come in three parts, which the ranks give in turn."""

    def __init__(self, base: Weights, info: RankInfo) -> None:
        self._base, self._rank, self._size = base, info.rank, info.size

    def has_adapters(self) -> bool:
        return False

    def weight_sources(self, bucket_bytes: int, *, form: str) -> list[int]:
        return [part % self._size for part in range(3)]

    def weights(self, *, version: int, part: int, bucket_bytes: int, form: str) -> WeightUpdate:
        given = part % self._size == self._rank
        mine = dict(list(weights_of(self._base, version).items())[part::3]) if given else {}
        return WeightUpdate(version, mine, part, 3)


def build_learner(base: Weights, info: RankInfo) -> LearnerWorker:
    return LearnerWorker(Learner(base, info), rank=info.rank, bucket_bytes=1 << 20)
