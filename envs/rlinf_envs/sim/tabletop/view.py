"""The camera: the table from above, drawn with numpy alone.

Every outline is a signed distance (negative inside), so edges are smooth at any size. Only the square around a shape
is touched, so a frame costs what its shapes cover.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlinf_envs.sim.tabletop.world import BODY_RADIUS, TIP_RADIUS

_RGB = {
    "red": (214, 48, 49),
    "green": (46, 160, 67),
    "blue": (38, 101, 221),
    "yellow": (241, 196, 15),
}
_TABLE = (190, 178, 160)
_TIP = (25, 25, 30)

Distance = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _disc(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.sqrt(x * x + y * y) - 1.0


def _square(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.maximum(np.abs(x), np.abs(y)) - 0.86


def _triangle(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Point up; its corners lie a little outside the disc that it touches as."""
    side = 0.866 * np.abs(x) + 0.5 * y
    return np.maximum(side, -y) - 0.58


_OUTLINES: dict[str, Distance] = {"disc": _disc, "square": _square, "triangle": _triangle}


def draw(size: int, tip: np.ndarray, bodies: np.ndarray, kinds: tuple[tuple[str, str], ...]) -> np.ndarray:
    """uint8 [size, size, 3]; the near edge is the bottom row, the tip lies above everything."""
    image = np.empty((size, size, 3), dtype=np.float32)
    image[:] = _TABLE
    for centre, (colour, shape) in zip(bodies, kinds, strict=True):
        _paint(image, centre, BODY_RADIUS, _OUTLINES[shape], _RGB[colour])
    _paint(image, tip, TIP_RADIUS, _disc, _TIP)
    return (image + 0.5).astype(np.uint8)


def _paint(
    image: np.ndarray, centre: np.ndarray, radius: float, outline: Distance, colour: tuple[int, int, int]
) -> None:
    """Blends one shape into its square of the image."""
    size = len(image)
    column, row = float(centre[0]) * size, (1.0 - float(centre[1])) * size
    reach = radius * size * 1.2 + 1.0
    left, right = max(0, int(column - reach)), min(size, int(column + reach) + 1)
    top, bottom = max(0, int(row - reach)), min(size, int(row + reach) + 1)
    scale = 1.0 / (radius * size)
    x = (np.arange(left, right, dtype=np.float32) + 0.5 - column) * scale
    y = (row - np.arange(top, bottom, dtype=np.float32) - 0.5) * scale
    # One pixel wide from outside to inside.
    cover = np.clip(0.5 - outline(x[None, :], y[:, None]) / scale, 0.0, 1.0)[:, :, None]
    part = image[top:bottom, left:right]
    part += cover * (np.asarray(colour, dtype=np.float32) - part)
