"""What JPEG leaves of a picture: TensorFlow's own pixels, and nearly those of Pillow."""

from __future__ import annotations

import io
import json

import numpy as np
import openvla_checkpoints as small
import pytest
from PIL import Image

from rlinf.models.vla.published.jpeg_rounding import through_jpeg

PICTURE = small.observation(0)["front"]


def test_pixels_are_those_of_tensorflow() -> None:
    """TensorFlow 2.21 has written and read a picture whose sides are no multiples of 16."""
    golden = json.loads((small.GOLDEN / "dataset_pictures.json").read_text())
    assert through_jpeg(np.ascontiguousarray(PICTURE[::9, ::11])).tolist() == golden["jpeg"]


@pytest.mark.parametrize("shape", [(256, 256), (33, 47), (40, 18)])
def test_pillow_differs_by_the_rounding_of_its_inverse_transform(shape: tuple[int, int]) -> None:
    picture = np.ascontiguousarray(PICTURE[: shape[0], : shape[1]])
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "JPEG", quality=95, subsampling=2)
    theirs = np.asarray(Image.open(stream)).astype(int)
    difference = np.abs(through_jpeg(picture) - theirs)
    assert difference.max() <= 8
    assert difference.mean() < 1.5


def test_one_colour_stays_as_it_is() -> None:
    grey = np.full((24, 40, 3), 128, np.uint8)
    assert np.array_equal(through_jpeg(grey), grey)
