"""Actions at a steady rate while the next chunk is computed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import numpy as np

ChunkOf = Callable[[Mapping[str, Any]], np.ndarray]
"""From a request to a chunk [K, *shape]."""
_REMEMBERED = 10
_DEADLINE_S = 60.0


class ChunkPlayer:
    """Gives one action a call; requests a new chunk as soon as ``begin_at`` actions or fewer are left.

    The request has the actions that are left (`previous`) and how many of them will be carried out before the answer
    is there (`delay`): as many as at the slowest of the last ten requests. Used as a context, which ends its thread.
    """

    def __init__(self, chunk_of: ChunkOf, *, begin_at: int) -> None:
        self._chunk_of, self._begin_at = chunk_of, begin_at
        self._left: deque[np.ndarray] = deque()
        self._pending: Future[np.ndarray] | None = None
        self._since = 0
        self._delays: deque[int] = deque([0], maxlen=_REMEMBERED)
        self._pool = ThreadPoolExecutor(1)
        self.stalls_ms: list[float] = []
        """How long the robot waited, of each call that had no action left."""
        self.jumps: list[float] = []
        """Largest difference between an action and the one that the chunk before had for its moment."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def action(self, observation: Mapping[str, Any]) -> np.ndarray:
        """Return the next action [*shape]. Raises TimeoutError if no chunk comes within a minute."""
        if self._pending is not None and self._pending.done():
            self._take(self._pending.result())
        if self._pending is None and len(self._left) <= self._begin_at:
            request = dict(observation)
            if self._left:
                request |= {"previous": np.stack(self._left), "delay": min(max(self._delays), len(self._left))}
            self._since, self._pending = 0, self._pool.submit(self._chunk_of, request)
        if not self._left:
            assert self._pending is not None
            began = time.perf_counter()
            chunk = self._pending.result(timeout=_DEADLINE_S)
            self.stalls_ms.append((time.perf_counter() - began) * 1e3)
            self._take(chunk)
        self._since += 1
        return self._left.popleft()

    def _take(self, chunk: np.ndarray) -> None:
        """Go on in a new chunk, at the action whose moment it is; the last one if all are late."""
        late = min(self._since, len(chunk) - 1)
        self._delays.append(self._since)
        if self._left:
            self.jumps.append(float(np.abs(chunk[late] - self._left[0]).max()))
        self._left, self._pending = deque(chunk[late:]), None
