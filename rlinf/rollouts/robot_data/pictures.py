"""Single pictures as PNG (written without loss) or any format that Pillow reads. An import of Pillow's own."""

from __future__ import annotations

import io

import numpy as np

from rlinf.rollouts.robot_data.dataset import DatasetError


def encode_png(picture: np.ndarray) -> bytes:
    """The PNG file of a picture [H, W, 3] uint8."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(picture).save(file, format="PNG")
    return file.getvalue()


def decode_picture(file: bytes, place: str) -> np.ndarray:
    """The pixels [H, W, 3] uint8 of a picture's file; ``place`` names it in the DatasetError of a damaged one."""
    from PIL import Image

    try:
        return np.array(Image.open(io.BytesIO(file)).convert("RGB"))
    except (OSError, ValueError) as error:
        raise DatasetError(f"{place}: a picture cannot be read: {error}") from error
