"""``rlinf/ShapeQuestions-v0``: the questions of Shapes with closed answers, for policies that choose."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from rlinf_envs.errors import SettingError
from rlinf_envs.typed import typed
from rlinf_envs.vision.drawing import KINDS, WHITE, Picture, drawn

_LONGEST = 64


class ShapeQuestions(gymnasium.Env[dict[str, Any], np.int64]):
    """A picture and a question in words; the action is one of the answers, and the episode one decision long.

    An action is an index into :attr:`answers`. The reward is 1 for the right one.
    """

    @typed
    def __init__(
        self, questions: tuple[str, ...] | list[str] = tuple(KINDS), pixels: int = 32, shown: str = "right"
    ) -> None:
        """
        Args:
            questions: kinds of questions, some of colour, count, size and position.
            pixels: width and height of a picture.
            shown: the picture that the policy sees: right, blank (one colour) or swapped (that of another question of
                the same kind). The answer is always that of the right one.
        """
        unknown = [kind for kind in questions if kind not in KINDS]
        if unknown or not questions:
            raise SettingError(f"questions are some of {', '.join(KINDS)}, not {', '.join(unknown) or 'none'}")
        if pixels < 16:
            raise SettingError(f"pixels must be at least 16, got {pixels}")
        if shown not in ("right", "blank", "swapped"):
            raise SettingError(f"shown must be right, blank or swapped, not {shown}")
        self._kinds, self._pixels, self._shown = tuple(questions), pixels, shown
        self.answers = tuple(dict.fromkeys(answer for kind in self._kinds for answer in KINDS[kind][1]))
        letters = "".join(sorted({letter for kind in self._kinds for letter in KINDS[kind][0]}))
        self.observation_space = gymnasium.spaces.Dict(
            {
                "image": gymnasium.spaces.Box(0, 255, (pixels, pixels, 3), np.uint8),
                "instruction": gymnasium.spaces.Text(_LONGEST, charset=letters),
            }
        )
        self.action_space = gymnasium.spaces.Discrete(len(self.answers))
        self._observation: dict[str, Any] = {}
        self._answer = ""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        kind = str(self.np_random.choice(self._kinds))
        self._answer = str(self.np_random.choice(KINDS[kind][1]))
        self._observation = {"image": self._picture(kind), "instruction": KINDS[kind][0]}
        return self._observation, {"answer": self._answer}

    def step(self, action: np.int64) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        right = self.answers[int(action)] == self._answer
        return self._observation, float(right), True, False, {"success": right}

    def _picture(self, kind: str) -> Picture:
        picture = drawn(self.np_random, kind, self._answer, self._pixels, WHITE)
        if self._shown == "blank":
            return np.full_like(picture, 128)
        if self._shown == "swapped":
            return drawn(self.np_random, kind, str(self.np_random.choice(KINDS[kind][1])), self._pixels, WHITE)
        return picture
