"""Pictures as OpenVLA's towers were trained with them: JPEG, size, crop in the middle, colours of each tower.

In its data sets a picture went through JPEG, was resized to 224 x 224 with a Lanczos filter, and was cropped at random
while training; its evaluations crop the middle. Arithmetic follows TensorFlow's in float32, and rounds where it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlinf.data.pictures import bicubic
from rlinf.models.loading import PolicyError
from rlinf.models.vla.published.jpeg_rounding import through_jpeg

PictureKind = Literal["dataset", "plain"]
SIDE = 224
"""Of the square pictures in OpenVLA's data sets."""
_RADIUS = 3.0  # of the Lanczos filter


class TrainedPictures:
    """Images [N, h, w, 3] or [N, 3, h, w], uint8, to float32 [N, 3, side, side] for each tower."""

    def __init__(self, preprocessor: Mapping[str, Any], *, kind: PictureKind, center_crop: float) -> None:
        """``preprocessor``: of `preprocessor_config.json`. ``kind``: `plain` leaves JPEG and Lanczos filter out.

        ``center_crop``: share of the area, in the middle, that is seen. Raises PolicyError for a way of resizing
        other than `resize-naive`, and for other filters than `bicubic`.
        """
        strategy = preprocessor.get("image_resize_strategy", "letterbox")
        if strategy != "resize-naive":
            raise PolicyError(
                f"preprocessor_config.json: image_resize_strategy {strategy} is not read: resize-naive is"
            )
        sizes = preprocessor["input_sizes"]
        filters = preprocessor.get("interpolations") or ["bicubic"] * len(sizes)
        if set(filters) != {"bicubic"}:
            raise PolicyError(f"preprocessor_config.json: interpolations: {filters} are not all bicubic")
        self._kind, self._share = kind, center_crop
        self._sides = [int(size[-1]) for size in sizes]
        self._means, self._deviations = (
            [torch.tensor(values, dtype=torch.float32).reshape(3, 1, 1) for values in preprocessor[name]]
            for name in ("means", "stds")
        )

    def __call__(self, images: Tensor) -> list[Tensor]:
        """Return the pixels of each tower, on the device of ``images``."""
        rows = images.cpu()
        pictures = (rows.movedim(1, -1) if rows.shape[-1] != 3 else rows).contiguous().numpy()
        prepared = [self._prepared(picture) for picture in pictures]
        result = []
        for side, mean, deviation in zip(self._sides, self._means, self._deviations, strict=True):
            sized = np.stack([bicubic(picture, side) for picture in prepared])
            pixels = torch.from_numpy(sized).movedim(-1, 1).float() / 255.0
            result.append(((pixels - mean) / deviation).to(images.device))
        return result

    def _prepared(self, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        if self._kind == "dataset" and picture.shape[:2] != (SIDE, SIDE):
            picture = lanczos(through_jpeg(picture), SIDE)
        return picture if self._share == 1.0 else cropped(picture, self._share, SIDE)


def lanczos(picture: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Resize [h, w, 3] to [side, side, 3] with a Lanczos filter of radius 3, wider where the picture gets smaller."""
    tall = _filtered(picture.astype(np.float32), side)
    sized = _filtered(tall.swapaxes(0, 1), side).swapaxes(0, 1)
    return np.clip(np.rint(sized), 0, 255).astype(np.uint8)


def cropped(picture: NDArray[np.uint8], share: float, side: int) -> NDArray[np.uint8]:
    """Cut the middle ``share`` of the area out of [h, w, 3] and resize it to [side, side, 3], linearly."""
    pixels = picture.astype(np.float32) * np.float32(1.0 / 255.0)
    edge = np.sqrt(np.float32(share))
    low = (np.float32(1.0) - edge) / np.float32(2.0)
    (top, bottom, down), (left, right, across) = (
        _corners(length, low, low + edge, side) for length in picture.shape[:2]
    )
    across, down = across[None, :, None], down[:, None, None]
    above = pixels[top][:, left] + (pixels[top][:, right] - pixels[top][:, left]) * across
    below = pixels[bottom][:, left] + (pixels[bottom][:, right] - pixels[bottom][:, left]) * across
    mixed = np.clip(above + (below - above) * down, 0.0, 1.0)
    return (mixed * np.float32(255.5)).astype(np.uint8)


def _corners(
    length: int, low: np.float32, high: np.float32, side: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Neighbours of ``side`` positions between two shares of ``length`` pixels, with their distances to the first."""
    step = (high - low) * np.float32(length - 1) / np.float32(side - 1)
    positions = low * np.float32(length - 1) + np.arange(side, dtype=np.float32) * step
    first = np.floor(positions)
    return first.astype(np.int64), np.ceil(positions).astype(np.int64), positions - first


def _filtered(pixels: NDArray[np.float32], side: int) -> NDArray[np.float32]:
    """Resize the first axis to ``side``; the sum over pixels is taken in their order."""
    length = len(pixels)
    one, scale = np.float32(1.0), np.float32(side) / np.float32(length)
    wide = max(one / scale, one)
    centres = (np.arange(side, dtype=np.float32) + np.float32(0.5)) * (one / scale)
    reach = np.float32(_RADIUS) * wide
    first = np.clip(np.ceil(centres - reach - np.float32(0.5)), 0, length - 1).astype(np.int64)
    last = np.clip(np.floor(centres + reach - np.float32(0.5)), 0, length - 1).astype(np.int64)
    sources = first[:, None] + np.arange(int((last - first).max()) + 1)
    distances = np.abs((sources.astype(np.float32) + np.float32(0.5) - centres[:, None]) * (one / wide))
    weights = np.where(sources <= last[:, None], _lanczos(distances), np.float32(0.0))
    weights *= one / weights.cumsum(1, dtype=np.float32)[:, -1:]
    result = np.zeros((side, *pixels.shape[1:]), dtype=np.float32)
    for number in range(sources.shape[1]):
        result += weights[:, number, None, None] * pixels[np.minimum(sources[:, number], length - 1)]
    return result


def _lanczos(distances: NDArray[np.float32]) -> NDArray[np.float32]:
    circle, radius = np.float32(np.pi), np.float32(_RADIUS)
    distinct = np.where(distances <= 1e-3, np.float32(1.0), distances)
    # Sines in float64, rounded: numpy's own in float32 are a last bit off.
    whole, part = (
        np.sin(angles.astype(np.float64)).astype(np.float32)
        for angles in (circle * distinct, circle * distinct / radius)
    )
    near = np.where(distances <= 1e-3, np.float32(1.0), radius * whole * part / (circle * circle * distinct * distinct))
    return np.where(distances > radius, np.float32(0.0), near).astype(np.float32)
