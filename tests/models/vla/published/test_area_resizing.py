"""Pictures resized by areas are OpenCV's, to the last bit."""

from __future__ import annotations

import json

import groot_checkpoints as small
import numpy as np
import pytest

from rlinf.models.vla.published.area_resizing import area_resized

_PICTURE = np.random.default_rng(0).integers(0, 256, (24, 36, 3), dtype=np.uint8)


@pytest.mark.parametrize("size", small.RESIZED)
def test_a_picture_is_opencvs(size: tuple[int, int]) -> None:
    golden = json.loads((small.GOLDEN / "area_resizing.json").read_text())
    assert np.array_equal(area_resized(_PICTURE, size), np.array(golden[f"{size[0]}x{size[1]}"], dtype=np.uint8))


def test_a_picture_of_that_size_stays() -> None:
    assert area_resized(_PICTURE, (24, 36)) is _PICTURE
