"""A learner that only holds the weights of a policy, so that a test can send them."""

from __future__ import annotations

import functools
from typing import Any

from torch import Tensor

from rlinf.cluster import Cluster, RankInfo
from rlinf.cluster.weights.sender import WeightSender
from rlinf.cluster.weights.transport import choose
from rlinf.config import Config
from rlinf.config.facts import settled
from rlinf.train.workers.env_pool import EnvPool
from rlinf.types import WeightUpdate


class HeldWeights(WeightSender):
    def __init__(self, tensors: dict[str, Tensor], info: RankInfo) -> None:
        super().__init__(info.rank)
        self.tensors = tensors

    def weight_parts(self) -> int:
        return 1

    def weights(self, *, version: int, part: int = 0) -> WeightUpdate:
        return WeightUpdate(version, self.tensors)


def send(cluster: Cluster, config: Config, pool: EnvPool, policy: Any, version: int) -> None:
    """Connects the workers that act in ``pool`` to the weights of ``policy``, and sends them as ``version``."""
    held = {name: tensor.clone() for name, tensor in policy.weights()}
    learner = cluster.spawn(f"{pool.group.name}_learner", functools.partial(HeldWeights, held))
    pool.acting.connect(choose(settled(config), learner, pool.acting.group, cuda=False))
    pool.acting.send_weights(version)
