"""Columns of a LeRobotDataset v3 folder as arrays: numbers, words, pictures inside the Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlinf.data.spaces import exactly
from rlinf.datasets.robot_data.dataset import DatasetError
from rlinf.datasets.robot_data.pictures import decode_picture

LocationOf = Callable[[int], str]
"""From a row to its file, episode and frame, for messages."""


class UnusableColumn(Exception):
    """A column without a value in some frame, or of a type that has no array: an error only if it is used."""


def column_values(column: Any, feature: Mapping[str, Any], name: str, location_of: LocationOf) -> np.ndarray:
    """[N, ...] of a column of the table; pictures are decoded and have their channels last.

    Raises UnusableColumn for a frame without a value and for an unknown type. Raises DatasetError for pictures
    that cannot be read and for frames of another size than in the header.
    """
    if feature["dtype"] == "image":
        return _pictures(column, name, location_of)
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise UnusableColumn(f"{location_of(row)} has no value")
    if feature["dtype"] == "string":
        return np.array(column.to_pylist(), dtype=object)
    return _numbers(column, feature, name, location_of)


def channels_first(feature: Mapping[str, Any]) -> bool | None:
    """Whether the shape of a feature begins with the channels, by its ``names``; None if they do not show it."""
    names = feature.get("names")
    if isinstance(names, Mapping):
        names = next(iter(names.values()), None)
    if not isinstance(names, (list, tuple)) or len(names) != len(feature["shape"]):
        return None
    results = [str(name).lower() in ("channels", "channel", "c") for name in names]
    return results[0] if results[0] or results[-1] else None


def _numbers(column: Any, feature: Mapping[str, Any], name: str, location_of: LocationOf) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    shape = tuple(int(size) for size in feature["shape"])
    try:
        dtype = np.dtype(feature["dtype"])
    except TypeError as error:
        raise UnusableColumn(f"its dtype in meta/info.json is {feature['dtype']!r}, which is not read") from error
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    uneven = False
    while pa.types.is_nested(array.type):
        if pa.types.is_struct(array.type):
            raise UnusableColumn(f"it holds {array.type}, not {dtype}")
        uneven = uneven or len(pc.unique(pc.list_value_length(array))) > 1
        array = array.flatten()
    each = int(np.prod(shape))
    # Rows of unequal size may have the right number together: every frame after the first odd one would be shifted.
    if uneven or len(array) != len(column) * each:
        raise DatasetError(_another_size(column, each, name, shape, location_of))
    if array.null_count:
        row = array.is_null().to_pylist().index(True) // each
        raise UnusableColumn(f"{location_of(row)} has no value in one of its entries")
    try:
        # Arrow's own memory cannot be written to.
        values: np.ndarray = exactly(array.to_numpy(zero_copy_only=False), dtype, name).copy()
    except (ValueError, TypeError) as error:
        raise UnusableColumn(f"it holds {array.type}, not {dtype}: {error}") from error
    if shape == (1,):
        return values
    values = values.reshape(len(column), *shape)
    # Pictures that are kept as plain arrays have the order of films and PNG files, too.
    return np.moveaxis(values, 1, -1) if len(shape) == 3 and channels_first(feature) else values


def _another_size(column: Any, each: int, name: str, shape: tuple[int, ...], location_of: LocationOf) -> str:
    sizes = [int(np.size(entry)) if entry is not None else 0 for entry in map(_flat, column.to_pylist())]
    row = next((row for row, size in enumerate(sizes) if size != each), 0)
    return (
        f"{location_of(row)}: {name} has {sizes[row]} numbers, and its shape in meta/info.json is {list(shape)}. "
        "Correct it there, or the frame"
    )


def _flat(entry: Any) -> list[Any]:
    return [number for part in entry for number in _flat(part)] if isinstance(entry, list) else [entry]


def _pictures(column: Any, name: str, location_of: LocationOf) -> np.ndarray:
    pictures = [_picture(entry, f"{location_of(row)}: {name}") for row, entry in enumerate(column.to_pylist())]
    for row, picture in enumerate(pictures):
        if picture.shape != pictures[0].shape:
            raise DatasetError(
                f"{location_of(row)}: {name} is a picture of {list(picture.shape)}, and the first one is "
                f"{list(pictures[0].shape)}. All must have one size"
            )
    return np.stack(pictures)


def _picture(entry: Any, location: str) -> np.ndarray:
    if not isinstance(entry, Mapping) or entry.get("bytes") is None:
        raise DatasetError(f"{location}: the picture is not in the Parquet file")
    return decode_picture(entry["bytes"], location)
