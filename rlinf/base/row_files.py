"""Rows of data files: JSONL, JSON, Parquet, CSV and TSV, plain or compressed with gzip; each with its position.

Nothing here depends on what a row means: only on files, and on the position of a broken row.
"""

from __future__ import annotations

import csv
import functools
import gzip
import itertools
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

from rlinf.base.file_kinds import mistaken
from rlinf.base.json_text import RepeatedKeys, parse_json
from rlinf.base.parquet_rows import MAX_ROW_BYTES, MAX_ROWS, ParquetError, parquet_rows
from rlinf.base.table_json import orientation, rows_of

_LINES, _TABLES, _GZIP = (".jsonl", ".ndjson"), {".csv": ",", ".tsv": "\t"}, ".gz"
_BEGINNINGS = {".gz": (b"\x1f\x8b",), ".parquet": (b"PAR1",), ".json": (b"\xff\xfe", b"\xfe\xff")}
"""How files begin that are no text in UTF-8, by the ending of their names; JSON may be in UTF-16."""
_TEXTS = (*_LINES, ".json", *_TABLES)
SUFFIXES = (*_LINES, ".json", ".parquet", *_TABLES, *(f"{suffix}{_GZIP}" for suffix in _TEXTS))
_OF_TOOLS = ("tool_calls", "function_call", "tools", "functions")
MAX_JSON_BYTES = 1 << 30
"""Of a .json file, which is read as a whole."""
_AS_RECORDS = "write it with to_json(path, orient='records', lines=True)"
_SPLITS = frozenset(("train", "test", "validation", "valid", "val", "dev", "eval"))
_WRAPPINGS, _NUMBER = ("data", "examples", "rows"), "row_idx"
"""The keys of an object that holds rows (BIG-bench's are examples), and what the hub's server adds to each row."""
_PYTHONS = "Expecting property name enclosed in double quotes"
_IN_JSON = " (a list of all rows is read from a .json file)"
_PACKED = (".zst", ".bz2", ".xz", ".zip", ".lz4")


class RowFileError(ValueError):
    """A file that cannot be read at all; the message names it, and its line if there is one."""


@dataclass(frozen=True)
class Record:
    """One row and where it stands ("train.jsonl:17").

    ``problem`` states why there is no row, if it could not be read."""

    location: str
    row: Mapping[str, Any] | None
    problem: str = ""
    folder: Path | None = None
    """The folder of its file, from which the row's names of files start; None for a row of no file."""
    repeated: tuple[str, ...] = ()
    """What is not read of a row that has keys twice: "answer (twice in the row: the last counts)"."""


def is_row_file(file: Path) -> bool:
    """Whether :func:`read_rows` reads files of this name."""
    return file.name.lower().endswith(SUFFIXES)


def read_rows(file: Path) -> Iterator[Record]:
    """Read the rows of ``file``, in their order.

    Raises:
        RowFileError: no file of this kind is read, or this one is damaged.
        ImportError: it is a Parquet file, and pyarrow is missing.
    """
    suffix = Path(file.name.lower().removesuffix(_GZIP)).suffix
    if not is_row_file(file):
        how = f"a table of pandas: {_AS_RECORDS}"
        if file.suffix == ".arrow":
            how = f"the folder that `datasets` saved is read as a whole: {file.parent}"
        elif file.suffix in _PACKED:
            how = "unpack it, or pack it with gzip"
        raise RowFileError(
            f"{file}: cannot read {file.suffix or 'a file without suffix'}; known: {', '.join(SUFFIXES)} ({how})"
        )
    try:
        other = mistaken(file, expected=_BEGINNINGS.get(file.suffix.lower(), ()))
        if other:
            raise RowFileError(other)
        if suffix == ".parquet":
            rows = _parquet(file)
        elif suffix == ".json":
            rows = _json(file)
        else:
            rows = _table(file, _TABLES[suffix]) if suffix in _TABLES else _lines(file)
        for number, record in enumerate(rows):
            if number == MAX_ROWS:
                raise RowFileError(f"{file}: the file has more than {MAX_ROWS:,} rows: take a part of them")
            yield replace(record, folder=file.parent)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise RowFileError(f"{file}: no whole gzip file: {error}") from error
    except OSError as error:
        raise RowFileError(f"{file}: {error.strerror or error}") from error


def _opened(file: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(file, "rb")) if file.name.lower().endswith(_GZIP) else file.open("rb")


def _lines(file: Path) -> Iterator[Record]:
    with _opened(file) as lines:
        for number in itertools.count(1):
            line = lines.readline(MAX_ROW_BYTES + 1)
            if not line:
                return
            if len(line) > MAX_ROW_BYTES:
                while line and not line.endswith(b"\n"):
                    line = lines.readline(MAX_ROW_BYTES)
                yield Record(f"{file}:{number}", None, f"the row has over {MAX_ROW_BYTES >> 20} MiB")
            elif line.strip() in (b"[", b"{"):
                raise RowFileError(f"{file}:{number}: a .jsonl file has one whole object on each line{_IN_JSON}")
            elif line.strip():
                record = _parsed(line, f"{file}:{number}")
                alone = number == 1 and not line.endswith(b"\n")
                orient = orientation(record.row) if alone else None
                if orient is not None:
                    table = f"the file holds one table in the orient {orient!r} of pandas' to_json"
                    raise RowFileError(f"{file}: {table}, and a .jsonl file a row on each line: {_AS_RECORDS}")
                yield record


def _parsed(line: bytes, location: str) -> Record:
    try:
        return _checked(parse_json(line.rstrip()), location)  # an error at the line's end then counts its columns
    except ValueError as error:
        return Record(location, None, _no_json(error))


def _no_json(error: Exception) -> str:
    """Why a text could not be read: broken JSON, other bytes than UTF-8, numbers or nesting beyond any use."""
    if isinstance(error, json.JSONDecodeError):
        fix, rest = "", error.doc[error.pos :].lstrip()
        if rest[:1] in ("]", "}") and error.doc[: error.pos].rstrip().endswith(","):
            fix = " (take out the comma before it)"
        elif error.msg == _PYTHONS:
            fix = " (Python's own notation is none: write rows with json.dumps)"
        elif error.msg == "Extra data" and rest[:1] in (",", "{"):
            fix = " (one row stands on each line, with nothing behind it)"
        return f"no valid JSON: {error.msg} at column {error.colno}{fix}"
    if isinstance(error, UnicodeDecodeError):
        return f"no text in UTF-8 (byte 0x{error.object[error.start]:02x} at {error.start}): save the file as UTF-8"
    return f"no usable JSON: {str(error).partition(';')[0]}"  # then Python explains how to raise its limit


def _json(file: Path) -> Iterator[Record]:
    with _opened(file) as opened:
        text = opened.read(MAX_JSON_BYTES + 1)
    if len(text) > MAX_JSON_BYTES:
        raise RowFileError(
            f"{file} has more than {MAX_JSON_BYTES >> 20:,} MiB, which is the most that is read of .json: write one "
            "row on each line of a .jsonl file"
        )
    try:
        content = parse_json(text)
    except ValueError as error:
        # Some datasets put JSON lines into a .json file; each line is then judged by itself.
        if _parsed(text.partition(b"\n")[0], "").row is None:
            raise RowFileError(f"{file}:{_line(text, error)}: {_no_json(error)}") from error
        yield from _lines(file)
        return
    orient = orientation(content)
    if orient is not None:
        try:
            content = rows_of(content, orient)
        except ValueError as error:
            raise RowFileError(f"{file}: {error}: {_AS_RECORDS}") from error
    if isinstance(content, Mapping):
        if len(content) > 1 and content.keys() <= _SPLITS:
            names = ", ".join(f"{name}.json" for name in content)
            raise RowFileError(f"{file} holds several splits: write them to a folder, as {names}, and name the folder")
        wrapped = next((content[name] for name in _WRAPPINGS if name in content), None)
        if isinstance(wrapped, list) and wrapped and all(isinstance(row, Mapping) for row in wrapped):
            # The other keys describe the data set.
            content = {"data": [row["row"] if _NUMBER in row and "row" in row else row for row in wrapped]}
        lists = [value for value in content.values() if isinstance(value, list)]
        # {"data": [...]} is a common wrapping; a lone object is a dataset of one row.
        content = lists[0] if len(lists) == 1 and len(content) == 1 else [content]
    if not isinstance(content, list):
        result = "null" if content is None else type(content).__name__
        raise RowFileError(
            f"{file}: a dataset must be a list of objects, or one object per line; the file holds {result}"
        )
    for index, row in enumerate(content):
        yield _checked(_numbered(row), f"{file}[{index}]")


def _numbered(row: Any) -> Any:
    """Convert a row that is a list of messages to an object by number, as the ``datasets`` library reads it."""
    if isinstance(row, list) and row and all(isinstance(message, Mapping) for message in row):
        return {str(number): message for number, message in enumerate(row)}
    return row


def _line(text: bytes, error: Exception) -> int:
    """Find the line in which reading ``text`` failed; the first one if the error does not state it."""
    if isinstance(error, json.JSONDecodeError):
        return error.lineno
    return 1 + text.count(b"\n", 0, error.start) if isinstance(error, UnicodeDecodeError) else 1


def _table(file: Path, delimiter: str) -> Iterator[Record]:
    """Rows of a table whose first line names the columns; every cell is text, and an empty one is null."""
    with _opened(file) as opened:
        # Decoded line by line, so that a row of other bytes is named by its number.
        lines = iter(functools.partial(opened.readline, MAX_ROW_BYTES + 1), b"")
        decoded = (line.decode("utf-8-sig" if number == 0 else "utf-8") for number, line in enumerate(lines))
        csv.field_size_limit(MAX_ROW_BYTES)
        reader = csv.reader(decoded, delimiter=delimiter, strict=True)
        names: list[str] | None = None
        try:
            for cells in reader:
                location = f"{file}:{reader.line_num}"
                if names is None:
                    names = _header(cells, file, delimiter)
                elif cells and len(cells) != len(names):
                    yield Record(location, None, f"the row has {len(cells)} cells, and the first line has {len(names)}")
                elif cells:
                    row = {name: cell or None for name, cell in zip(names, cells, strict=True) if name}
                    yield Record(location, row)
        except (csv.Error, UnicodeDecodeError) as error:
            raise RowFileError(f"{file}:{reader.line_num + 1}: no readable table in UTF-8: {error}") from error


def _header(cells: list[str], file: Path, delimiter: str) -> list[str]:
    """Return the names of the columns; that of the first is empty where it holds the index of pandas' ``to_csv``."""
    names = [cell.strip() for cell in cells]
    if len(set(names)) < len(names) or not all(names[1:] or names):
        raise RowFileError(f"{file}:1: the first line must name each column, once; it has {', '.join(names)}")
    other = next((mark for mark in (";", "\t", ",", "|") if mark != delimiter and mark in cells[0]), None)
    if len(names) == 1 and other is not None:
        raise RowFileError(f"{file}:1: cells are separated by {other!r}: write {delimiter!r} between them")
    return names


def _parquet(file: Path) -> Iterator[Record]:
    try:
        for number, row in enumerate(parquet_rows(file)):
            location = f"{file} row {number}"
            yield Record(location, None, row) if isinstance(row, str) else Record(location, without_absent(row))
    except ParquetError as error:
        raise RowFileError(str(error)) from error


def without_absent(value: Any, *, of_tools: bool = False) -> Any:
    """Return a row of a table without the null fields in its calls and descriptions of tools.

    A column of a table has the same fields in each row: those that a call does not have are null there.

    >>> without_absent({"tools": [{"name": "f", "unit": None}], "note": {"unit": None}})
    {'tools': [{'name': 'f'}], 'note': {'unit': None}}
    """
    if isinstance(value, Mapping):
        return {
            name: without_absent(one, of_tools=of_tools or name in _OF_TOOLS)
            for name, one in value.items()
            if not (of_tools and one is None)
        }
    if isinstance(value, list) and value and isinstance(value[0], Mapping | list):
        return [without_absent(one, of_tools=of_tools) for one in value]
    return value


def _checked(row: Any, location: str) -> Record:
    if not isinstance(row, Mapping):
        listed = _IN_JSON if isinstance(row, list) else ""
        return Record(location, None, f"a row must be an object, got {type(row).__name__}{listed}")
    names = row.names if isinstance(row, RepeatedKeys) else ()
    return Record(location, row, repeated=tuple(f"{name} (twice in the row: the last counts)" for name in names))
