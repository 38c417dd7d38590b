"""A learner that only holds the weights of a policy, so that a test can send them."""

from __future__ import annotations

import functools
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from torch import Tensor

from rlinf.cluster import Cluster, RankInfo
from rlinf.cluster.weights.choice import choose
from rlinf.cluster.weights.sender import WeightSender
from rlinf.config import Config
from rlinf.data.messages import WeightForm, WeightUpdate
from rlinf.train.workers.env_pool import EnvPool


class HeldWeights(WeightSender):
    def __init__(self, tensors: dict[str, Tensor], info: RankInfo) -> None:
        super().__init__(info.rank)
        self.tensors = tensors

    def weight_sources(self, *, form: WeightForm = "merged") -> list[int]:
        return [0]

    def weights(self, *, version: int, part: int = 0, form: WeightForm = "merged") -> WeightUpdate:
        return WeightUpdate(version, self.tensors)


def send(cluster: Cluster, config: Config, pool: EnvPool, policy: Any, version: int) -> None:
    """Connects the workers that act in ``pool`` to the weights of ``policy``, and sends them as ``version``."""
    held = {name: tensor.clone() for name, tensor in policy.weights()}
    learner = cluster.spawn(f"{pool.group.name}_learner", functools.partial(HeldWeights, held))
    pool.acting.connect(
        choose(config.facts.weight_transport, learner, pool.acting.group, cuda=False, keep=config.facts.overlaps)
    )
    pool.acting.send_weights(version)


class Call:
    """A call under way in a worker's thread, or a half of the pair that it returns."""

    def __init__(self, future: Future[Any], half: int | None = None) -> None:
        self.future, self.half = future, half

    def result(self, timeout: float | None = None) -> Any:
        value = self.future.result(timeout=60.0)
        return value if self.half is None else value[self.half]


class Threads:
    """Workers that are threads, and the calls that they were given."""

    name = "sampler"

    def __init__(self, workers: list[Any]) -> None:
        self.workers, self.size = workers, len(workers)
        self.pools = [ThreadPoolExecutor(1) for _ in workers]
        self.calls: list[str] = []

    def submit_one(self, rank: int, method: str, /, *args: Any, **options: Any) -> Any:
        self.calls.append(method)
        # Another call's handle stands for its value.
        args = tuple(one.result() if isinstance(one, Call) else one for one in args)
        return Call(self.pools[rank].submit(getattr(self.workers[rank], method), *args, **options))

    def submit_remote(self, rank: int, method: str, /, *args: Any, **options: Any) -> tuple[Call, Call]:
        future = self.submit_one(rank, method, *args, **options).future
        return Call(future, 0), Call(future, 1)

    def submit(self, method: str, /, *args: Any, **options: Any) -> list[Any]:
        return [self.submit_one(rank, method, *args, **options) for rank in range(self.size)]

    def call(self, method: Any, *args: Any, **options: Any) -> list[Any]:
        return self.gather(self.submit(method if isinstance(method, str) else method.__name__, *args, **options))

    def call_one(self, rank: int, method: str, /, *args: Any, **options: Any) -> Any:
        return self.submit_one(rank, method, *args, **options).result()

    def gather(self, handles: list[Any]) -> list[Any]:
        return [handle.result() for handle in handles]

    def nodes(self) -> list[str]:
        return ["127.0.0.1"] * self.size
