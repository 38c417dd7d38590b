"""Pictures of coloured shapes, and the questions that they answer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]

COLOURS = {"red": (220, 40, 40), "green": (40, 180, 60), "blue": (50, 80, 220), "yellow": (230, 210, 40)}
GREY, WHITE = 128, 245
"""Brightness of the ground. Image processors map grey to 0, so only what is drawn excites a vision tower."""
_SIDES = ("left", "right", "top", "bottom")
KINDS = {
    "colour": ("What colour is the shape?", tuple(COLOURS)),
    "count": ("How many shapes are there?", ("1", "2", "3", "4")),
    "size": ("Which shape is larger, left or right?", ("left", "right")),
    "position": ("Where is the shape: left, right, top or bottom?", _SIDES),
}
"""Kind of question -> its words and its answers."""
_CORNERS = 4


def drawn(random: np.random.Generator, kind: str, answer: str, size: int, ground: int = GREY) -> Picture:
    """Return a picture uint8 [size, size, 3] in which ``answer`` to the question of ``kind`` is right."""
    picture = np.full((size, size, 3), ground, np.uint8)
    small, large = size // 5, size // 2 - 2
    colours = random.permutation(list(COLOURS)).tolist()
    if kind == "colour":
        _shape(random, picture, answer, int(random.integers(small + 2, large)), (0, 0, size, size))
    elif kind == "count":
        half = size // 2
        corners = [(top, left, top + half, left + half) for top in (0, half) for left in (0, half)]
        for number in random.permutation(_CORNERS)[: int(answer)].tolist():
            _shape(random, picture, colours[0], int(random.integers(small, small + 3)), corners[number])
    elif kind == "size":
        widths = (large, small) if answer == "left" else (small, large)
        for side, (width, colour) in enumerate(zip(widths, colours, strict=False)):
            _shape(random, picture, colour, width, (0, side * size // 2, size, (side + 1) * size // 2))
    else:
        third = size // 3
        strips = {
            "left": (third, 0, size - third, third),
            "right": (third, size - third, size - third, size),
            "top": (0, third, third, size - third),
            "bottom": (size - third, third, size, size - third),
        }
        _shape(random, picture, colours[0], small, strips[answer])
    return picture


def _shape(
    random: np.random.Generator, picture: Picture, colour: str, width: int, box: tuple[int, int, int, int]
) -> None:
    """Draw a disc or a square of ``width`` somewhere in a box (top, left, bottom, right)."""
    sides = ((box[0], box[2]), (box[1], box[3]))
    top, left = (int(random.integers(first, max(first, last - width) + 1)) for first, last in sides)
    inside = np.ones((width, width), bool)
    if random.random() < 0.5:
        from_middle = np.arange(width) - (width - 1) / 2
        inside = from_middle[:, None] ** 2 + from_middle**2 <= (width / 2) ** 2
    picture[top : top + width, left : left + width][inside] = COLOURS[colour]
