"""When a supervisor of the tabletop takes over from a policy, and when the policy goes on (HG-DAgger)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium

_ASTRAY = 0.05
"""Table lengths by which the way may grow beyond the shortest so far, and by which help shortens it."""
_IDLE = 2
"""Decisions without progress after which the supervisor takes over."""


def astray(env: gymnasium.Env) -> Callable[[Any], bool]:
    """Take over once the way to the goal has grown, or two decisions have not shortened it; then until it is shorter.

    The result is called with an observation before each decision, and returns whether the demonstrator makes it.
    """
    tabletop: Any = env.unwrapped
    shortest, idle = float("inf"), 0
    until: float | None = None

    def helps(_observation: Any) -> bool:
        nonlocal shortest, idle, until
        way = tabletop.way_to_go()
        if until is not None and way <= until:
            until, idle = None, 0
        elif until is None:
            idle = 0 if way < shortest - 1e-3 else idle + 1
            if way > shortest + _ASTRAY or idle >= _IDLE:
                until = max(0.0, shortest - _ASTRAY)
        shortest = min(shortest, way)
        return until is not None

    return helps
