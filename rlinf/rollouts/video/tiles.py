"""Several episodes in one picture: a grid of frames, each under two lines of words. The only import of Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_BAND, _LINE, _MARGIN, _FONT_SIZE = 36, 17, 4, 12
_NARROWEST, _WIDEST = 208, 320
_COLOURS = {"success": (63, 185, 80), "ended": (210, 153, 34), "over": (139, 148, 158), "running": (139, 148, 158)}
_BACKGROUND, _TEXT = (13, 17, 23), (230, 237, 243)


@dataclass
class Tile:
    """The state of an episode while it runs, for its picture."""

    number: int
    step: int = 0
    reward: float = 0.0
    """Of the newest step."""
    total: float = 0.0
    success: bool | None = None
    """None until the environment tells it."""
    over: bool = False
    frame: np.ndarray | None = None
    """[H, W, 3] uint8, the newest."""

    @property
    def state(self) -> str:
        """``success`` stays once it was reached; ``ended`` is an end without it, ``over`` one if it was not
        reported."""
        if self.success or not self.over:
            return "success" if self.success else "running"
        return "over" if self.success is None else "ended"


def grid_size(tiles: int) -> tuple[int, int]:
    """Return (columns, rows) of a near-square grid.

    >>> grid_size(5)
    (3, 2)
    """
    columns = int(np.ceil(np.sqrt(tiles)))
    return columns, -(-tiles // columns)


class Grid:
    """Draws tiles of one size; the first frame decides how large they are."""

    def __init__(self) -> None:
        from PIL import ImageFont

        # The font comes inside Pillow: nothing of the system is needed.
        self._font = ImageFont.load_default(size=_FONT_SIZE)
        self._size: tuple[int, int] | None = None

    def draw(self, tiles: Sequence[Tile]) -> np.ndarray:
        """[H, W, 3] uint8: a near-square grid, row by row."""
        columns, _ = grid_size(len(tiles))
        drawn = [self._tile(tile) for tile in tiles]
        blank = np.zeros_like(drawn[0])
        rows = [drawn[first : first + columns] for first in range(0, len(drawn), columns)]
        return np.concatenate([np.concatenate([*row, *[blank] * (columns - len(row))], axis=1) for row in rows])

    def _tile(self, tile: Tile) -> np.ndarray:
        from PIL import Image, ImageDraw

        assert tile.frame is not None
        if self._size is None:
            self._size = _fitting(tile.frame.shape[1], tile.frame.shape[0])
        width, height = self._size
        canvas = Image.new("RGB", (width, height + _BAND), _BACKGROUND)
        # Pixel art grows by whole pixels; photographs shrink smoothly.
        how = Image.Resampling.NEAREST if tile.frame.shape[1] < width else Image.Resampling.BILINEAR
        canvas.paste(Image.fromarray(tile.frame).resize((width, height), how), (0, _BAND))
        pen: Any = ImageDraw.Draw(canvas)
        pen.text((_MARGIN, 2), f"episode {tile.number}   step {tile.step}", _TEXT, font=self._font)
        pen.text(
            (_MARGIN, 2 + _LINE), f"reward {_short(tile.reward)}   return {_short(tile.total)}", _TEXT, font=self._font
        )
        colour = _COLOURS[tile.state]
        pen.text((width - _MARGIN, 2), tile.state, colour, font=self._font, anchor="ra")
        pen.rectangle((0, 0, width - 1, height + _BAND - 1), outline=colour, width=2)
        return np.asarray(canvas)


def _short(value: float) -> str:
    """
    >>> _short(-1e-7), _short(158.2345)
    ('0', '158.2')
    """
    return f"{round(value, 3) + 0.0:.4g}"


def _fitting(width: int, height: int) -> tuple[int, int]:
    """(width, height) of a tile's picture: wide enough for the words, small enough for a screen; even sides."""
    factor = 1.0
    if width < _NARROWEST:
        factor = float(-(-_NARROWEST // width))
    elif width > _WIDEST:
        factor = _WIDEST / width
    return round(width * factor) // 2 * 2, round(height * factor) // 2 * 2
