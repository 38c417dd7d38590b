"""Resizing by areas as OpenCV's INTER_AREA does it, with its roundings: float32 sums, or 11-bit weights to enlarge."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_BITS = 11  # of the weights that enlarge


def area_resized(picture: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Resize a picture [h, w, C] to ``size`` (rows, columns)."""
    scales = [1.0 / (new / old) for new, old in zip(size, picture.shape, strict=False)]
    if tuple(picture.shape[:2]) == size:
        return picture
    if min(scales) < 1.0:
        return _enlarged(picture, size)
    whole = [round(scale) for scale in scales]
    if all(abs(scale - number) < np.finfo(np.float64).eps for scale, number in zip(scales, whole, strict=True)):
        return _means(picture, *whole)
    columns, rows = (_taps(old, new) for old, new in zip(picture.shape[1::-1], size[::-1], strict=True))
    narrow = _weighted(picture.swapaxes(0, 1).astype(np.float32), *columns).swapaxes(0, 1)
    return np.clip(np.rint(_weighted(narrow, *rows)), 0, 255).astype(np.uint8)


def _means(picture: NDArray[np.uint8], down: int, across: int) -> NDArray[np.uint8]:
    """Mean of blocks of ``down`` rows and ``across`` columns."""
    height, width = picture.shape[0] // down, picture.shape[1] // across
    blocks = picture.reshape(height, down, width, across, -1).astype(np.int32).sum(axis=(1, 3))
    if down == across == 2:
        return ((blocks + 2) >> 2).astype(np.uint8)
    return np.rint(blocks.astype(np.float32) * np.float32(1.0 / (down * across))).astype(np.uint8)


def _taps(old: int, new: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the ``old`` positions that each ``new`` one covers [new, taps], and their weights; 0 for none."""
    scale = 1.0 / (new / old)
    width = math.ceil(scale) + 2
    sources, weights = np.zeros((new, width), np.int64), np.zeros((new, width), np.float32)
    for number in range(new):
        begin, end = number * scale, number * scale + scale
        cell = min(scale, old - begin)
        last = min(math.floor(end), old - 1)
        first = min(math.ceil(begin), last)
        parts = [(first - 1, (first - begin) / cell)] if first - begin > 1e-3 else []
        parts += [(source, 1.0 / cell) for source in range(first, last)]
        if end - last > 1e-3:
            parts.append((last, min(end - last, 1.0, cell) / cell))
        for at, (source, weight) in enumerate(parts):
            sources[number, at], weights[number, at] = source, weight
    return sources, weights


def _weighted(
    lines: NDArray[np.float32], sources: NDArray[np.int64], weights: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Sum lines [old, ...] by ``weights`` [new, taps], tap after tap in float32."""
    total = np.zeros((len(sources), *lines.shape[1:]), np.float32)
    for source, weight in zip(sources.T, weights.T, strict=True):
        total += lines[source] * weight.reshape(-1, *[1] * (lines.ndim - 1))
    return total


def _enlarged(picture: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Interpolate between two lines where an area is smaller than a pixel."""
    rows, columns = (_pairs(old, new) for old, new in zip(picture.shape, size, strict=False))
    first, second, before, after = columns
    wide = picture[:, first].astype(np.int32) * before[:, None] + picture[:, second].astype(np.int32) * after[:, None]
    first, second, before, after = rows
    upper, lower = (
        (wide[source] >> 4) * weight[:, None, None] for source, weight in ((first, before), (second, after))
    )
    return (((upper >> 16) + (lower >> 16) + 2) >> 2).astype(np.uint8)


def _pairs(old: int, new: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Return two ``old`` positions for each ``new`` one, and their weights in 2048ths."""
    ratio = new / old
    positions = np.arange(new)
    sources = np.floor(positions * (1.0 / ratio)).astype(np.int64)
    share = ((positions + 1) - (sources + 1) * ratio).astype(np.float32)
    share = np.where(share <= 0, np.float32(0), share - np.floor(share)).astype(np.float32)
    share[sources >= old - 1] = 0
    sources = np.minimum(sources, old - 1)
    before, after = (np.rint(part * np.float32(1 << _BITS)).astype(np.int32) for part in (np.float32(1) - share, share))
    return sources, np.minimum(sources + 1, old - 1), before, after
