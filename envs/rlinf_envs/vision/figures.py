"""``rlinf/Figures-v0``: drawn rectangles with the lengths of their sides as digits, and questions that need them."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlinf_envs.dialogue import End
from rlinf_envs.errors import SettingError
from rlinf_envs.short_answers import is_number, number_in
from rlinf_envs.typed import typed
from rlinf_envs.vision.drawing import GREY, Picture
from rlinf_envs.vision.picture_question import PictureQuestion

_GLYPHS = (
    ("###", "# #", "# #", "# #", "###"),
    (" # ", "## ", " # ", " # ", "###"),
    ("###", "  #", "###", "#  ", "###"),
    ("###", "  #", " ##", "  #", "###"),
    ("# #", "# #", "###", "  #", "  #"),
    ("###", "#  ", "###", "  #", "###"),
    ("###", "#  ", "###", "# #", "###"),
    ("###", "  #", "  #", " # ", " # "),
    ("###", "# #", "###", "# #", "###"),
    ("###", "# #", "###", "  #", "###"),
)
"""Digits 0 to 9, 5 rows of 3."""
_QUESTIONS = {
    "side": ("How long is the top side?", lambda wide, high: wide),
    "perimeter": ("What is the perimeter?", lambda wide, high: 2 * (wide + high)),
    "area": ("What is the area?", lambda wide, high: wide * high),
}
_LINE = 60


class Figures(PictureQuestion):
    """A rectangle with two digits and a question about it; the reward is 1 for the right number.

    The rectangle is not drawn to scale: the digits have to be read.
    """

    max_turns = 1

    @typed
    def __init__(self, question: str | None = None, largest: int = 9, pixels: int = 32, scale: int = 2) -> None:
        """
        Args:
            question: side, perimeter or area; by default each figure has one of them.
            largest: longest side; sides are whole numbers from 1.
            pixels: width and height of a picture.
            scale: pixels of a dot of a digit, which is 3 dots wide and 5 high.
        """
        if question is not None and question not in _QUESTIONS:
            raise SettingError(f"question must be one of {', '.join(_QUESTIONS)}, not {question}")
        if not 1 <= largest < len(_GLYPHS):
            raise SettingError(f"largest must lie between 1 and 9, got {largest}")
        if scale < 1 or pixels < 16 * scale:
            raise SettingError(f"pixels must be at least {16 * max(scale, 1)} with a scale of {scale}, got {pixels}")
        super().__init__(pixels)
        self._questions = tuple(_QUESTIONS) if question is None else (question,)
        self._largest, self._scale = largest, scale

    def begin(self) -> dict[str, Any]:
        words, solve = _QUESTIONS[str(self.np_random.choice(self._questions))]
        wide, high = (int(self.np_random.integers(1, self._largest + 1)) for _ in range(2))
        self._answer = str(solve(wide, high))
        return {"picture": self._drawn(wide, high), "question": words}

    def reply(self, response: str) -> End:
        answer = number_in(response)
        return End(float(is_number(answer, int(self._answer))), extracted=answer)

    def demonstrate(self, observation: str) -> str:
        return self._answer

    def _drawn(self, wide: int, high: int) -> Picture:
        """Draw a picture [pixels, pixels, 3]: one digit above the rectangle, one left of it."""
        size, scale = self._pixels, self._scale
        picture = np.full((size, size, 3), GREY, np.uint8)
        top, left = 6 * scale, 4 * scale
        room = size - 2 - max(top, left)
        width, height = (int(self.np_random.integers(room // 2, room + 1)) for _ in range(2))
        bottom, right = top + height, left + width
        picture[[top, bottom], left : right + 1] = _LINE
        picture[top : bottom + 1, [left, right]] = _LINE
        self._write(picture, wide, 0, left + int(self.np_random.integers(max(1, room // 2 - 3 * scale))))
        self._write(picture, high, top + int(self.np_random.integers(max(1, room // 2 - 5 * scale))), 0)
        return picture

    def _write(self, picture: Picture, digit: int, top: int, left: int) -> None:
        """Write a digit with its upper left corner at ``top``, ``left``."""
        dots = np.array([[dot == "#" for dot in row] for row in _GLYPHS[digit]])
        inside = np.kron(dots, np.ones((self._scale, self._scale), bool))
        picture[top : top + inside.shape[0], left : left + inside.shape[1]][inside] = 0
