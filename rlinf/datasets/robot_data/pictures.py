"""Single pictures as PNG (written without loss) or any format that Pillow reads. An import of Pillow's own."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from rlinf.base.packages import install_command
from rlinf.datasets.robot_data.dataset import DatasetError

_DEEP = ("I", "F")
"""Pillow's modes of pixels with more than 8 bits; so are those that begin with `I;16`."""


def encode_png(picture: np.ndarray) -> bytes:
    """Encode a picture [H, W, 3] uint8 as a PNG file."""
    file = io.BytesIO()
    _pillow().fromarray(picture).save(file, format="PNG")
    return file.getvalue()


def decode_picture(file: bytes, location: str, *, colour: bool = True) -> np.ndarray:
    """Decode a picture's file to pixels [H, W, 3] uint8; ``location`` names it in the DatasetError of a damaged one.

    Without ``colour`` a grey picture stays one, [H, W].
    """
    images = _pillow()
    try:
        picture = images.open(io.BytesIO(file))
        if picture.mode in _DEEP or picture.mode.startswith("I;16"):
            raise DatasetError(
                f"{location}: a picture has pixels of mode {picture.mode}, such as depth, which 0 to 255 cannot hold. "
                "Write it with 8 bits, or as a column of numbers"
            )
        return np.array(picture.convert("RGB") if colour else picture)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{location}: a picture cannot be read: {error}") from error


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise DatasetError(f"pictures of a dataset need Pillow: {install_command('video')}") from error
    return Image
