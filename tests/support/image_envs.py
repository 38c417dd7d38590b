"""An environment of pictures, small enough to be stepped in a test."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Gallery(gymnasium.Env):
    """Six steps before pictures that show which action is right, with numbers; ends early now and then."""

    observation_space = spaces.Dict(
        {"picture": spaces.Box(0, 255, (20, 20, 3), np.uint8), "numbers": spaces.Box(-9, 9, (3,), np.float32)}
    )
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.left = 6
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        self.left -= 1
        reward = float(action == self.right)
        return self._observation(), reward, bool(self.np_random.random() < 0.1), self.left == 0, {}

    def _observation(self) -> Any:
        self.right = int(self.np_random.integers(3))
        picture = self.np_random.integers(0, 256, (20, 20, 3), np.uint8)
        picture[..., self.right] = 255
        return {"picture": picture, "numbers": self.np_random.normal(size=3).astype(np.float32)}


gymnasium.register("Gallery-v0", f"{__name__}:Gallery")
