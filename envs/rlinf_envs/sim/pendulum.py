"""A demonstrator of mixed quality for Pendulum, for algorithms that learn from recorded transitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

_KINDS = ("swing up", "brake", "random")
_NOISE = 0.3
"""Standard deviation of what is added to a torque, as a share of the largest one."""


def swing_up(angle: float, speed: float) -> float:
    """Compute a torque in [-1, 1], a share of the largest one: energy until the top is near, then hold.

    ``angle`` 0 is upright, in radians; ``speed`` in radians a second.

    >>> swing_up(np.pi, 1.0), swing_up(0.05, 0.0)
    (1.0, -0.25)
    """
    if np.cos(angle) > 0.9 and abs(speed) < 2.0:
        upright = (angle + np.pi) % (2 * np.pi) - np.pi
        return float(np.clip(-5.0 * upright - 1.0 * speed, -1.0, 1.0))
    energy = speed**2 / 6.0 + 5.0 * (np.cos(angle) - 1.0)  # 0 at rest at the top
    return float(np.clip(-energy * speed, -1.0, 1.0))


def mixed_expert(env: gymnasium.Env) -> Callable[[Any], np.ndarray]:
    """Swing up in a third of the episodes, brake in one, turn at random in one, all with noise: float32 [1].

    Which it is follows from the episode's seed. Torques of those that swing up and of those that brake are opposite, so
    that imitating all of them gives neither.
    """
    pendulum: Any = env.unwrapped
    draws = np.random.default_rng(int(pendulum.np_random.integers(2**31)))
    kind = _KINDS[int(draws.integers(len(_KINDS)))]

    def act(_observation: Any) -> np.ndarray:
        angle, speed = (float(number) for number in pendulum.state)
        if kind == "random":
            torque = draws.uniform(-1.0, 1.0)
        else:
            torque = swing_up(angle, speed) if kind == "swing up" else -float(np.clip(speed, -1.0, 1.0))
            torque = np.clip(torque + _NOISE * draws.standard_normal(), -1.0, 1.0)
        return np.array([pendulum.max_torque * torque], dtype=np.float32)

    return act
