"""``rlinf/Details-v0``: a question about a detail that only an enlarged part of the picture shows."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from rlinf_envs.dialogue import End
from rlinf_envs.errors import SettingError
from rlinf_envs.short_answers import option_in
from rlinf_envs.tools.calls import written
from rlinf_envs.typed import typed
from rlinf_envs.vision.drawing import GREY, Picture
from rlinf_envs.vision.picture_question import PictureQuestion

_LIGHT = 254
_MIDDLE = (GREY + _LIGHT) // 2
_PATTERNS = {
    "rows": ((_LIGHT, _LIGHT), (GREY, GREY)),
    "columns": ((_LIGHT, GREY), (_LIGHT, GREY)),
    "checks": ((_LIGHT, GREY), (GREY, _LIGHT)),
    "plain": ((_MIDDLE, _MIDDLE), (_MIDDLE, _MIDDLE)),
}
"""Brightness of 2 x 2 pixels, which are one pixel of the overview: all have the same mean."""
_CORNERS = {"top left": (0, 0), "top right": (0, 1), "bottom left": (1, 0), "bottom right": (1, 1)}
_QUESTION = "Which pattern has the box: rows, columns, checks or plain?"


class Details(PictureQuestion):
    """A light box in one corner, and a question about its pattern; the reward is 1 for the right answer.

    The policy sees an overview of half the width and height, whose pixels are means: all patterns are equal there. The
    tool ``zoom`` shows a quarter of the picture with all its pixels. The three other quarters are empty.
    """

    max_turns = 2

    @typed
    def __init__(self, pixels: int = 32, box: int = 12, unsure: float = 0.0, shown: str = "right") -> None:
        """
        Args:
            pixels: width and height of the overview and of an enlarged corner.
            box: largest width and height of the box in the overview; the smallest are half of it.
            unsure: share of demonstrations that give any answer instead of calling the tool. A policy that imitates
                them does both, and its reward has to show which of them pays.
            shown: what the tool shows: right, or blank (one colour), which tests whether a policy needs it.
        """
        if pixels < 4 or pixels % 2:
            raise SettingError(f"pixels must be even and at least 4, got {pixels}")
        if not 1 <= box <= pixels // 2:
            raise SettingError(f"box must lie between 1 and half of pixels ({pixels // 2}), got {box}")
        if not 0.0 <= unsure <= 1.0:
            raise SettingError(f"unsure must lie between 0 and 1, got {unsure}")
        if shown not in ("right", "blank"):
            raise SettingError(f"shown must be right or blank, not {shown}")
        super().__init__(pixels)
        self.tools = [self.zoom]
        self._box, self._unsure, self._shown = box, unsure, shown
        self._whole = np.full((2 * pixels, 2 * pixels, 3), GREY, np.uint8)
        self._guess = self._corner = ""
        self._zoomed = False

    def zoom(self, corner: Literal["top left", "top right", "bottom left", "bottom right"]) -> Picture:
        """Show a corner of the picture larger.

        Args:
            corner: which one
        """
        self._zoomed = True
        size = self._pixels
        top, left = (size * side for side in _CORNERS[corner])
        part = self._whole[top : top + size, left : left + size]
        return part if self._shown == "right" else np.full_like(part, GREY)

    def begin(self) -> dict[str, Any]:
        random = self.np_random
        self._corner = str(random.choice(list(_CORNERS)))
        self._answer = str(random.choice(list(_PATTERNS)))
        self._guess = str(random.choice(list(_PATTERNS))) if random.random() < self._unsure else ""
        self._zoomed = False
        side, half = self._pixels, self._pixels // 2
        high, wide = random.integers((self._box + 1) // 2, self._box + 1, size=2).tolist()
        top, left = (
            2 * (half * far + int(random.integers(half - long + 1)))
            for far, long in zip(_CORNERS[self._corner], (high, wide), strict=True)
        )
        self._whole = np.full((2 * side, 2 * side, 3), GREY, np.uint8)
        pattern = np.tile(np.array(_PATTERNS[self._answer], np.uint8), (high, wide))
        self._whole[top : top + 2 * high, left : left + 2 * wide] = pattern[..., None]
        overview = self._whole.reshape(side, 2, side, 2, 3).mean(axis=(1, 3)).astype(np.uint8)
        return {"picture": overview, "question": _QUESTION}

    def reply(self, response: str) -> End:
        answer = option_in(response, tuple(_PATTERNS))
        return End(float(answer == self._answer), extracted=answer)

    def demonstrate(self, observation: str) -> str:
        """Zoom into the corner with the box, then name its pattern; or name any pattern at once."""
        if self._guess:
            return self._guess
        return self._answer if self._zoomed else written("zoom", {"corner": self._corner})
