"""MiniGrid and BabyAI: grid worlds with instructions in language.

The agent's 7 x 7 view becomes one plane per kind, colour and state of what is seen, since the numbers that MiniGrid
gives are names, not sizes. The mission stays text (`rlinf.rollouts.wrappers:TokenizeText` makes ids of it).
"""

from __future__ import annotations

import contextlib
import io
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlinf_envs.sim import MissingSimulatorError
from rlinf_envs.spaces import FreeText
from rlinf_envs.typed import typed

_KINDS, _COLOURS, _STATES = 11, 6, 4
_PLANES = _KINDS + _COLOURS + _STATES


class GridEnv(gymnasium.Wrapper):
    """Any MiniGrid or BabyAI task by its id. ``info["success"]``: the mission was completed (its reward is positive).

    ``num_actions`` keeps the first N of the seven actions: BabyAI's navigation needs only left, right, forward.
    """

    @typed
    def __init__(self, task: str = "BabyAI-GoToObj-v0", num_actions: int = 7, render_mode: str | None = None) -> None:
        try:
            import minigrid
        except ImportError as error:
            raise MissingSimulatorError("minigrid", extra="minigrid") from error
        gymnasium.register_envs(minigrid)
        with contextlib.redirect_stdout(io.StringIO()):
            super().__init__(gymnasium.make(task, render_mode=render_mode, disable_env_checker=True))
        self.action_space = spaces.Discrete(num_actions)
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 1, (_PLANES, 7, 7), np.uint8),
                "direction": spaces.Discrete(4),
                "mission": FreeText(256),
            }
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        with contextlib.redirect_stdout(io.StringIO()):  # rejected layouts are reported there
            observation, _ = self.env.reset(seed=seed, options=options)
        return _planes(observation), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, _ = self.env.step(int(action))
        return _planes(observation), float(reward), terminated, truncated, {"success": float(reward) > 0.0}


def _planes(observation: dict[str, Any]) -> dict[str, Any]:
    """MiniGrid's [7, 7, (kind, colour, state)] as one-hot planes [21, 7, 7]."""
    view = observation["image"]
    planes = np.zeros((_PLANES, 7, 7), dtype=np.uint8)
    first, second = np.indices((7, 7))
    for channel, offset, size in ((0, 0, _KINDS), (1, _KINDS, _COLOURS), (2, _KINDS + _COLOURS, _STATES)):
        planes[offset + np.minimum(view[..., channel], size - 1), first, second] = 1
    return {"image": planes, "direction": int(observation["direction"]), "mission": observation["mission"]}
