"""A group of workers that are objects here, as rollouts call one."""

from collections.abc import Sequence
from typing import Any


class InThisProcess:
    def __init__(self, workers: Sequence[Any]) -> None:
        self.workers, self.size = workers, len(workers)

    def call(self, method: str, /, *args: Any, per_rank: Any = None) -> list[Any]:
        rows = per_rank if per_rank is not None else [args] * self.size
        return [getattr(worker, method)(*row) for worker, row in zip(self.workers, rows, strict=True)]
