"""Pictures of environments: grey, transparent and wide ones are shown, and what is none is reported."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from rlinf.rollouts.video.filmable import RenderingError, _Filmable

COLOURS = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
GREY = np.arange(20, dtype=np.uint8).reshape(4, 5)


class Drawing(gymnasium.Env):
    """Draws what it was made with."""

    def __init__(self, drawn: Any) -> None:
        self.drawn = drawn

    def render(self) -> Any:
        return self.drawn


@pytest.mark.parametrize(
    ("drawn", "shown"),
    [
        (COLOURS, COLOURS),
        (COLOURS.astype(np.int64), COLOURS),
        (np.concatenate([COLOURS, np.full((4, 5, 1), 255, np.uint8)], axis=2), COLOURS),
        (GREY, np.stack([GREY] * 3, axis=2)),
        (GREY[..., None], np.stack([GREY] * 3, axis=2)),
    ],
)
def test_a_picture_has_three_colours(drawn: np.ndarray, shown: np.ndarray) -> None:
    frame = _Filmable(Drawing(drawn)).render()
    assert frame.dtype == np.uint8
    assert np.array_equal(frame, shown)


@pytest.mark.parametrize(
    ("drawn", "words"),
    [
        (COLOURS / 255, r"float64 \[4, 5, 3\], not a picture of whole numbers"),
        (None, "gave NoneType"),
        ([COLOURS], "gave list"),
        (np.zeros((4, 5, 6), np.uint8), r"gave \[4, 5, 6\]"),
    ],
)
def test_what_is_no_picture_is_reported(drawn: Any, words: str) -> None:
    with pytest.raises(RenderingError, match=words):
        _Filmable(Drawing(drawn)).render()
