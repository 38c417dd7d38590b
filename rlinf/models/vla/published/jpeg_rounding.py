"""What a JPEG file of quality 95 leaves of a picture if TensorFlow writes and reads it.

TensorFlow reads JPEG with the fast inverse transform of libjpeg (Arai, Agui and Nakajima's), which image libraries do
not offer; its rounding differs from theirs in most pixels. Entropy coding loses nothing, so it is left out. All numbers
are integers, with the roundings of libjpeg (ITU-T T.81; chroma of half the size in both directions).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

_LUMA = (
    "16 11 10 16 24 40 51 61 12 12 14 19 26 58 60 55 14 13 16 24 40 57 69 56 14 17 22 29 51 87 80 62 "
    "18 22 37 56 68 109 103 77 24 35 55 64 81 104 113 92 49 64 78 87 103 121 120 101 72 92 95 98 112 100 103 99"
)
_CHROMA = (
    "17 18 24 47 99 99 99 99 18 21 26 66 99 99 99 99 24 26 56 99 99 99 99 99 47 66 99 99 99 99 99 99 " + "99 " * 32
)
_SCALE = 10  # in percent, of quality 95
_SIDE = 16  # pixels of a unit of coding
_COLOURS = np.array([[19595, 38470, 7471], [-11059, -21709, 32768], [32768, -27439, -5329]])
_HALF = 1 << 15


def _tables() -> list[Integers]:
    """Quantisation steps [8, 8] of luma and chroma at this quality."""
    tables = [np.array(text.split(), dtype=np.int64).reshape(8, 8) for text in (_LUMA, _CHROMA)]
    return [np.clip((table * _SCALE + 50) // 100, 1, 255) for table in tables]


def _fast_steps(table: Integers) -> Integers:
    """Return the steps with the factors of the fast transform, scaled by 4."""
    cosines = [1.0, *(np.cos(number * np.pi / 16) * np.sqrt(2.0) for number in range(1, 8))]
    factors = np.rint(np.outer(cosines, cosines) * (1 << 14)).astype(np.int64)
    return (table * factors + (1 << 11)) >> 12


_STEPS = _tables()
_FAST_STEPS = [_fast_steps(table) for table in _STEPS]


def through_jpeg(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return [h, w, 3] as it is after writing and reading."""
    height, width, _ = picture.shape
    padded = np.pad(picture, ((0, -height % _SIDE), (0, -width % _SIDE), (0, 0)), mode="edge").astype(np.int64)
    offset = np.array([_HALF, (128 << 16) + _HALF - 1, (128 << 16) + _HALF - 1])
    planes = np.moveaxis((padded @ _COLOURS.T + offset) >> 16, 2, 0)
    luma = _coded(planes[0], 0)[:height, :width]
    chroma = [
        _larger(_coded(_smaller(plane), 1)[: (height + 1) // 2, : (width + 1) // 2])[:height, :width] - 128
        for plane in planes[1:]
    ]
    red = luma + ((91881 * chroma[1] + _HALF) >> 16)
    green = luma + ((-22554 * chroma[0] - 46802 * chroma[1] + _HALF) >> 16)
    blue = luma + ((116130 * chroma[0] + _HALF) >> 16)
    return np.clip(np.stack([red, green, blue], axis=2), 0, 255).astype(np.uint8)


def _smaller(plane: Integers) -> Integers:
    """Average squares of four; halves are rounded down and up in turn."""
    total = plane[::2, ::2] + plane[1::2, ::2] + plane[::2, 1::2] + plane[1::2, 1::2]
    return (total + 1 + np.arange(total.shape[1]) % 2) >> 2


def _larger(plane: Integers) -> Integers:
    """Double both sides; a pixel is 9/16 of the nearest one, and 3/16 or 1/16 of its neighbours."""
    rows = np.pad(plane, ((1, 1), (0, 0)), mode="edge")
    tall = np.stack([3 * plane + rows[:-2], 3 * plane + rows[2:]], axis=1).reshape(-1, plane.shape[1])
    columns = np.pad(tall, ((0, 0), (1, 1)), mode="edge")
    left, right = (3 * tall + columns[:, :-2] + 8) >> 4, (3 * tall + columns[:, 2:] + 7) >> 4
    return np.stack([left, right], axis=2).reshape(len(tall), -1)


def _coded(plane: Integers, kind: int) -> Integers:
    """Transform blocks of a plane [h, w], round to steps, and transform back."""
    rows, columns = plane.shape[0] // 8, plane.shape[1] // 8
    blocks = plane.reshape(rows, 8, columns, 8).swapaxes(1, 2) - 128
    coefficients = _forward(_forward(blocks, 3, first=True), 2, first=False)
    steps = _STEPS[kind] << 3
    levels = np.sign(coefficients) * ((np.abs(coefficients) + (steps >> 1)) // steps)
    back = _inverse(_inverse(levels * _FAST_STEPS[kind], 2), 3)
    whole = np.clip((back >> 5) + 128, 0, 255)
    return whole.swapaxes(1, 2).reshape(plane.shape)


def _forward(blocks: Integers, axis: int, *, first: bool) -> Integers:
    """Transform along an axis by the accurate method, with 13 bits of each factor (Loeffler, Ligtenberg, Moschytz)."""
    values = np.moveaxis(blocks, axis, 0)
    low, high = [values[n] + values[7 - n] for n in range(4)], [values[n] - values[7 - n] for n in range(4)]
    outer, inner = (low[0] + low[3], low[0] - low[3]), (low[1] + low[2], low[1] - low[2])

    def rounded(number: Integers) -> Integers:
        shift = 11 if first else 15
        return (number + (1 << (shift - 1))) >> shift

    made = np.empty_like(values)
    total, difference = outer[0] + inner[0], outer[0] - inner[0]
    made[0], made[4] = (total << 2, difference << 2) if first else ((total + 2) >> 2, (difference + 2) >> 2)
    shared = (inner[1] + outer[1]) * 4433
    made[2], made[6] = rounded(shared + outer[1] * 6270), rounded(shared - inner[1] * 15137)
    seven, six, five, four = high
    one, two, three, four_seven = four + seven, five + six, four + six, five + seven
    shared = (three + four_seven) * 9633
    one, two, three, four_seven = one * -7373, two * -20995, three * -16069 + shared, four_seven * -3196 + shared
    made[7] = rounded(four * 2446 + one + three)
    made[5] = rounded(five * 16819 + two + four_seven)
    made[3] = rounded(six * 25172 + two + three)
    made[1] = rounded(seven * 12299 + one + four_seven)
    return np.moveaxis(made, 0, axis)


def _inverse(blocks: Integers, axis: int) -> Integers:
    """Transform back along an axis by the fast method, with 8 bits of each factor."""
    values = np.moveaxis(blocks, axis, 0)
    total, difference = values[0] + values[4], values[0] - values[4]
    side = values[2] + values[6]
    rest = ((values[2] - values[6]) * 362 >> 8) - side
    even = total + side, difference + rest, difference - rest, total - side
    sums, differences = (values[5] + values[3], values[1] + values[7]), (values[5] - values[3], values[1] - values[7])
    last = sums[1] + sums[0]
    shared = (differences[0] + differences[1]) * 473 >> 8
    third = (differences[0] * -669 >> 8) + shared - last
    second = ((sums[1] - sums[0]) * 362 >> 8) - third
    first = (differences[1] * 277 >> 8) - shared + second
    made = np.empty_like(values)
    made[0], made[7] = even[0] + last, even[0] - last
    made[1], made[6] = even[1] + third, even[1] - third
    made[2], made[5] = even[2] + second, even[2] - second
    made[4], made[3] = even[3] + first, even[3] - first
    return np.moveaxis(made, 0, axis)
