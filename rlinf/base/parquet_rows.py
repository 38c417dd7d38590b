"""Parquet files, read a few rows at a time and never beyond stated limits, whatever a file claims to hold."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlinf.base.packages import absent
from rlinf.base.table_cells import cell_changes, changed

_BATCH_BYTES = 16 << 20
_MOST_ROWS_AT_ONCE = 4096
_BUFFER_BYTES = 1 << 20
_FREE_BYTES, _MOST_EXPANSION = 64 << 20, 200
"""A row group above the first may expand to at most this many times its size in the file: text does to about 20."""

MAX_ROWS = 5_000_000
"""Of one data set. Each becomes an object in memory, of a kilobyte or more."""
MAX_ROW_BYTES = 8 << 20
"""Of one row; far above any question that a policy could read."""


class ParquetError(ValueError):
    """A file that cannot be read, or not within the limits; the message names it."""


def parquet_rows(
    file: Path, *, max_rows: int = MAX_ROWS, max_row_bytes: int = MAX_ROW_BYTES
) -> Iterator[Mapping[str, Any] | str]:
    """Each row of ``file``, or what is wrong with it.

    Raises:
        ParquetError: the file cannot be read, or has more than ``max_rows`` rows, or expands beyond the limits.
        ImportError: ``pyarrow`` is not installed.
    """
    try:
        arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise absent("pyarrow", f"{file}: reading Parquet") from error
    try:
        schema = parquet.read_schema(file)
        # A text that many rows have stays one text; written out for each, it would not fit into memory.
        texts = [field.name for field in schema if _is_text(arrow, field.type)]
        changes = cell_changes(arrow, schema)
        with parquet.ParquetFile(file, read_dictionary=texts, buffer_size=_BUFFER_BYTES) as opened:
            _require_bounded(file, opened.metadata, max_rows, max_row_bytes)
            groups = [opened.metadata.row_group(number) for number in range(opened.metadata.num_row_groups)]
            widest = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)
            for batch in opened.iter_batches(
                batch_size=int(max(1, min(_MOST_ROWS_AT_ONCE, _BATCH_BYTES // max(1, widest))))
            ):
                longest = [_longest(arrow, column) for column in batch.columns]
                if sum(longest) <= max_row_bytes:
                    yield from (changed(row, changes) for row in batch.to_pylist())
                    continue
                for number in range(batch.num_rows):
                    row = batch.slice(number, 1)
                    size = sum(_bytes(arrow, column) for column in row.columns)
                    long = size > max_row_bytes
                    over = f"the row has over {max_row_bytes >> 20} MiB"
                    yield over if long else changed(row.to_pylist()[0], changes)
    except ParquetError:
        raise
    except (OSError, ValueError, MemoryError, arrow.ArrowException) as error:
        raise ParquetError(f"{file}: no readable Parquet file: {error or 'it does not fit into memory'}") from error


def _require_bounded(file: Path, metadata: Any, max_rows: int, max_row_bytes: int) -> None:
    if metadata.num_rows > max_rows:
        raise ParquetError(f"{file}: the file has {metadata.num_rows:,} rows, and at most {max_rows:,} are read")
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = [group.column(position) for position in range(group.num_columns)]
        whole = sum(column.total_uncompressed_size for column in columns)
        stored = sum(column.total_compressed_size for column in columns)
        if whole > max_row_bytes * max(1, group.num_rows):
            mean = whole // max(1, group.num_rows) >> 20
            raise ParquetError(f"{file}: rows have {mean:,} MiB on average, and at most {max_row_bytes >> 20} are read")
        if whole > max(_FREE_BYTES, _MOST_EXPANSION * stored):
            raise ParquetError(
                f"{file}: row group {number} expands from {stored >> 10:,} KiB to {whole >> 20:,} MiB, more than "
                f"{_MOST_EXPANSION} times: write the file with smaller row groups, or as .jsonl"
            )


def _is_text(arrow: Any, kind: Any) -> bool:
    types = arrow.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind))


def _longest(arrow: Any, column: Any) -> int:
    """Compute an upper bound of the bytes that one row of a column takes."""
    if arrow.types.is_dictionary(column.type):
        return _longest_text(column.dictionary)
    if _is_text(arrow, column.type):
        return _longest_text(column)
    return int(column.nbytes)


def _longest_text(column: Any) -> int:
    compute = importlib.import_module("pyarrow.compute")
    return int(compute.max(compute.binary_length(column)).as_py() or 0)


def _bytes(arrow: Any, column: Any) -> int:
    """Count the bytes of a column of one row."""
    if arrow.types.is_dictionary(column.type):
        index = column.indices[0].as_py()
        return 0 if index is None else _longest_text(column.dictionary.slice(index, 1))
    return _longest(arrow, column)
