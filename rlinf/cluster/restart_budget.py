"""How often workers may be replaced."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable


class RestartBudget:
    """At most ``limit`` restarts of a rank within ``window_s`` seconds; what lies longer ago is forgotten.

    A worker that dies over and over ends the run at once; one that dies once a day does not end it after a few days.

    >>> now = [0.0]
    >>> budget = RestartBudget(1, 60.0, clock=lambda: now[0])
    >>> budget.spend(0), budget.spend(0), budget.spend(1)
    (True, False, True)
    >>> now[0] = 61.0
    >>> budget.spend(0)
    True
    """

    def __init__(self, limit: int, window_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit, self.window_s = limit, window_s
        self._clock = clock
        self._restarts: defaultdict[int, deque[float]] = defaultdict(deque)

    def spend(self, rank: int) -> bool:
        """Take one restart of ``rank``; return False if none is left."""
        now, past = self._clock(), self._restarts[rank]
        while past and now - past[0] > self.window_s:
            past.popleft()
        if len(past) >= self.limit:
            return False
        past.append(now)
        return True
