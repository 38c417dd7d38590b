"""Workers that the tests of the cluster layer spawn: obedient, failing, dying, stalling.

Torch comes with the methods that need it: most tests start processes, and its import is most of a start.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

from rlinf.cluster import RankInfo
from rlinf.schema.cluster import ClusterConfig

if TYPE_CHECKING:
    from rlinf.data.messages import WeightUpdate

CONFIG = ClusterConfig(
    start_timeout_s=90.0, call_timeout_s=60.0, heartbeat_s=0.5, max_restarts=1, env={"RLINF_TEST_SETTING": "on"}
)
"""With deadlines that a test can wait for."""


class Worker:
    """Does what a test needs."""

    def __init__(self, info: RankInfo) -> None:
        self.info = info
        self.calls = 0
        self.sent = 0

    def where(self) -> RankInfo:
        return self.info

    def pid(self) -> int:
        return os.getpid()

    def threads(self) -> int:
        import torch

        return torch.get_num_threads()

    def setting(self, name: str) -> str | None:
        return os.environ.get(name)

    def hold_the_interpreter(self, seconds: float) -> None:
        """Native code that lets no other thread in for most of the time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            sum(range(50_000_000))

    def count(self) -> int:
        self.calls += 1
        return self.calls

    def add(self, left: int, right: int = 0) -> int:
        return left + right

    def total(self, update: WeightUpdate) -> float:
        return float(sum(tensor.double().sum() for tensor in update.tensors.values()))

    def weights(self, *, version: int) -> WeightUpdate:
        import torch

        from rlinf.data.messages import WeightUpdate

        return WeightUpdate(version, {"w": torch.arange(50_000, dtype=torch.float32)})

    def numbered_weights(self, *, version: int) -> tuple[int, WeightUpdate]:
        if version < 0:
            raise ValueError("no such version")
        return version, self.weights(version=version)

    def numbered_weights_and_raise(self, count: int, *, fail: bool = True) -> Iterator[tuple[int, WeightUpdate]]:
        for version in range(count):
            yield self.numbered_weights(version=version)
        if fail:
            self.numbered_weights(version=-1)

    def numbers(self, count: int, pause_s: float = 0.0) -> Iterator[int]:
        for number in range(count):
            self.sent = number + 1
            yield number
            time.sleep(pause_s)

    def numbers_then_raise(self) -> Iterator[int]:
        yield 0
        raise KeyError("no more")

    def sent_so_far(self) -> int:
        return self.sent

    def raise_error(self) -> NoReturn:
        raise ValueError("the loss is not finite")

    def exit(self) -> NoReturn:
        sys.exit(3)

    def die(self) -> None:
        print("about to go down", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    def stall(self, seconds: float) -> None:
        time.sleep(seconds)


class Collective(Worker):
    """Ranks that meet through gloo."""

    def __init__(self, info: RankInfo) -> None:
        import torch.distributed

        super().__init__(info)
        address = f"tcp://{info.master_address}:{info.master_port}"
        torch.distributed.init_process_group("gloo", init_method=address, rank=info.rank, world_size=info.size)

    def all_reduce(self) -> float:
        import torch.distributed

        value = torch.tensor(float(self.info.rank + 1))
        torch.distributed.all_reduce(value)
        return value.item()

    def all_reduce_but_raise_on(self, rank: int) -> float:
        if self.info.rank == rank:
            time.sleep(0.2)
            self.raise_error()
        return self.all_reduce()

    def all_reduce_but_die_on(self, rank: int) -> float:
        if self.info.rank == rank:
            time.sleep(0.2)
            self.die()
        return self.all_reduce()


def broken_on_rank_1(info: RankInfo) -> Worker:
    if info.rank == 1:
        raise FileNotFoundError("no such model folder")
    return Worker(info)
