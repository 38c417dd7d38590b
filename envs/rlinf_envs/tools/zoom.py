"""The tool ``zoom``: shows a part of a picture of the conversation larger."""

from __future__ import annotations

from typing import Any

from rlinf.data.pictures import opened
from rlinf_envs.errors import SettingError
from rlinf_envs.tools.tool import ToolError


class Zoom:
    """The pictures of one conversation; each part that is shown is a picture too, and can be enlarged again."""

    def __init__(self, *, pixels: int | None = None) -> None:
        """``pixels``: the longer side of what is shown; by default that of the whole picture."""
        if pixels is not None and pixels < 1:
            raise SettingError(f"tools: zoom: pixels must be at least 1, got {pixels}")
        self._pixels = pixels
        self.pictures: list[str] = []
        """Addresses of the pictures that the conversation has shown so far, which the toolbox writes."""

    def zoom(self, left: float, top: float, right: float, bottom: float, picture: int = 1) -> list[Any]:
        """Show a part of a picture larger. All sides are shares of the picture: 0 is left or top, 1 right or bottom.

        Args:
            left: the part's left side, from 0 to 1.
            top: its upper side.
            right: its right side, beyond left.
            bottom: its lower side, below top.
            picture: the number of the picture in the conversation, 1 for the first.
        """
        if not 1 <= picture <= len(self.pictures):
            raise ToolError(f"picture {picture} is not there: the conversation has {len(self.pictures)} pictures")
        if not (0.0 <= left < right <= 1.0 and 0.0 <= top < bottom <= 1.0):
            raise ToolError("sides lie between 0 and 1, with left below right and top below bottom")
        whole = opened(self.pictures[picture - 1])
        width, height = whole.size
        box = (int(left * width), int(top * height), -int(-right * width // 1), -int(-bottom * height // 1))
        part = whole.crop(box)
        factor = (self._pixels or max(width, height)) / max(part.size)
        size = max(1, round(part.width * factor)), max(1, round(part.height * factor))
        return [f"picture {len(self.pictures) + 1}: ", part.resize(size)]
