"""What environments with a picture, a question and one right answer have in common."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from rlinf_envs.dialogue import Dialogue
from rlinf_envs.spaces import FreeText


class PictureQuestion(Dialogue):
    """A picture and a question; the reward is 1 for the right answer. ``begin`` draws both; ``reply`` grades."""

    def __init__(self, pixels: int) -> None:
        """``pixels``: width and height of the observed picture."""
        self._pixels = pixels
        self._answer = ""
        self.observation_space = gymnasium.spaces.Dict(  # type: ignore[assignment]
            {"picture": gymnasium.spaces.Box(0, 255, (pixels, pixels, 3), np.uint8), "question": FreeText()}
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, infos = super().reset(seed=seed, options=options)
        return observation, {**infos, "answer": self._answer}
