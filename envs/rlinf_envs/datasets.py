"""Reading rows from JSONL, JSON, Parquet, and folders or names of the ``datasets`` library, each row with its place.

Nothing here knows what a row means; it knows files, splits, and where a broken row stands.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf.json_text import parse_json
from rlinf.packages import install_command
from rlinf_envs.errors import DatasetError
from rlinf_envs.suggest import unknown

SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet")
MAX_ROW_BYTES = 8 << 20
"""Longest line of a JSONL file; far above any question that a policy could read."""
_EVAL_NAMES = ("eval", "validation", "valid", "dev", "test")
_SAVED = ("dataset_dict.json", "state.json", "dataset_info.json")


@dataclass(frozen=True)
class Record:
    """One row and where it stands ("train.jsonl:17"). ``problem`` says why there is no row, if it could not be read."""

    place: str
    row: Mapping[str, Any] | None
    problem: str = ""


@dataclass(frozen=True)
class Selection:
    """The rows of one split. ``by_hash`` asks the caller to keep only one split."""

    records: Iterator[Record]
    by_hash: bool


Reader = Callable[[], Iterator[Record]]
_IN_JSON = " (a list of all rows is read from a .json file; .jsonl has a row on each line)"


def select(path: str, split: str | None, subset: str | None = None) -> Selection:
    """The rows of ``split``.

    A dataset with splits of its own gives them by name; "eval" is then the first of eval, validation, valid, dev, test.
    Where a dataset has no split for evaluation, "train" and "eval" are the two parts by a hash of the question.

    Args:
        path: a file, a folder (saved by ``datasets``, or with one file per split), or a name on the Hugging Face hub.
        split: a split's name, "train", "eval", or None for everything there is (the train split, where there are
            several).
        subset: configuration name of a hub dataset ("main" of openai/gsm8k).

    Raises:
        DatasetError: no such path or split.
        ImportError: ``datasets`` or ``pyarrow`` is needed and not installed.
    """
    if not isinstance(path, str) or not path:
        raise DatasetError(f"env.kwargs.path must name a file, a folder or a dataset of the hub, not {path!r}")
    readers = _readers(path, subset)
    own_eval = next((name for name in _EVAL_NAMES if name in readers), None)
    whole = readers.get("train") or (next(iter(readers.values())) if len(readers) == 1 else None)
    if split in readers and (split != "train" or own_eval):
        return Selection(readers[split](), by_hash=False)
    if split == "eval" and own_eval:
        return Selection(readers[own_eval](), by_hash=False)
    if whole is not None and split is None:
        return Selection(whole(), by_hash=False)
    if whole is not None and not own_eval and split in ("train", "eval"):
        return Selection(whole(), by_hash=True)
    raise DatasetError(f"{path}: " + unknown("split", str(split), {*filter(None, readers), "train", "eval"}))


def _readers(path: str, subset: str | None) -> dict[str, Reader]:
    """Split name -> function that reads it."""
    location = Path(os.path.expanduser(path))
    if location.is_file():
        return {"": lambda: _read_file(location)}
    if location.is_dir():
        if any((location / name).exists() for name in _SAVED):
            return _library_readers(_datasets().load_from_disk(str(location)), path)
        return _folder_readers(location)
    if location.suffix in SUFFIXES or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", path):
        raise DatasetError(f"{path}: there is no such file or folder")
    try:
        return _library_readers(_datasets().load_dataset(path, subset), path)
    except ImportError:
        raise
    except Exception as error:
        raise DatasetError(
            f"{path}: no such file or folder here, and the hub did not give it either ({type(error).__name__}: {error})"
        ) from error


def _folder_readers(folder: Path) -> dict[str, Reader]:
    """Files such as train.jsonl or train-00000-of-00002.parquet, grouped by the word that they start with."""
    groups: dict[str, list[Path]] = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.suffix in SUFFIXES:
            groups.setdefault(re.split(r"[-_.]", file.name)[0], []).append(file)
    if not groups:
        raise DatasetError(f"{folder}: no {', '.join(SUFFIXES)} file in this folder")

    def reader(files: list[Path]) -> Reader:
        return lambda: (record for file in files for record in _read_file(file))

    return {name: reader(files) for name, files in groups.items()}


def _read_file(file: Path) -> Iterator[Record]:
    if file.suffix == ".parquet":
        yield from _read_parquet(file)
    elif file.suffix == ".json":
        yield from _read_json(file)
    elif file.suffix in (".jsonl", ".ndjson"):
        yield from _read_lines(file)
    else:
        raise DatasetError(
            f"{file}: cannot read {file.suffix or 'a file without suffix'}; known: {', '.join(SUFFIXES)} (pandas "
            "writes a table as one: to_json(path, orient='records', lines=True))"
        )


def _read_lines(file: Path) -> Iterator[Record]:
    with file.open("rb") as lines:
        for number in itertools.count(1):
            line = lines.readline(MAX_ROW_BYTES + 1)
            if not line:
                return
            if len(line) > MAX_ROW_BYTES:
                while line and not line.endswith(b"\n"):
                    line = lines.readline(MAX_ROW_BYTES)
                yield Record(f"{file}:{number}", None, f"the row has over {MAX_ROW_BYTES >> 20} MiB")
            elif line.strip():
                yield _parsed(line, f"{file}:{number}")


def _parsed(line: bytes, place: str) -> Record:
    try:
        return _checked(parse_json(line.rstrip()), place)  # an error at the line's end then counts its columns
    except ValueError as error:
        return Record(place, None, _no_json(error))


def _no_json(error: Exception) -> str:
    """Why a text could not be read: broken JSON, other bytes than UTF-8, numbers or nesting beyond any use."""
    if isinstance(error, json.JSONDecodeError):
        return f"no valid JSON: {error.msg} at column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return f"no valid JSON: {error}"
    return f"no usable JSON: {str(error).partition(';')[0]}"  # behind it Python says how to raise its limit of digits


def _read_json(file: Path) -> Iterator[Record]:
    text = file.read_bytes()
    try:
        content = parse_json(text)
    except ValueError as error:
        # Some datasets put JSON lines into a .json file; each line is then judged by itself.
        if _parsed(text.partition(b"\n")[0], "").row is None:
            raise DatasetError(f"{file}:{_line(text, error)}: {_no_json(error)}") from error
        yield from _read_lines(file)
        return
    if isinstance(content, Mapping):
        lists = [value for value in content.values() if isinstance(value, list)]
        # {"data": [...]} is a common wrapping; a lone object is a dataset of one row.
        content = lists[0] if len(lists) == 1 and len(content) == 1 else [content]
    if not isinstance(content, list):
        found = "null" if content is None else type(content).__name__
        raise DatasetError(
            f"{file}: a dataset must be a list of objects, or one object per line; the file holds {found}"
        )
    for index, row in enumerate(content):
        yield _checked(row, f"{file}[{index}]")


def _line(text: bytes, error: Exception) -> int:
    """The line in which reading ``text`` failed; the first one where the error does not say."""
    if isinstance(error, json.JSONDecodeError):
        return error.lineno
    return 1 + text.count(b"\n", 0, error.start) if isinstance(error, UnicodeDecodeError) else 1


def _read_parquet(file: Path) -> Iterator[Record]:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ImportError("reading Parquet needs pyarrow: pip install pyarrow") from error
    try:
        batches = parquet.ParquetFile(file).iter_batches()
        number = 0
        for batch in batches:
            for row in batch.to_pylist():
                yield Record(f"{file} row {number}", row)
                number += 1
    except (OSError, ValueError) as error:
        raise DatasetError(f"{file}: no readable Parquet file: {error}") from error


def _checked(row: Any, place: str) -> Record:
    if not isinstance(row, Mapping):
        return Record(
            place, None, f"a row must be an object, got {type(row).__name__}{_IN_JSON if isinstance(row, list) else ''}"
        )
    return Record(place, row)


def _library_readers(loaded: Any, path: str) -> dict[str, Reader]:
    """Readers of a Dataset (one nameless split) or a DatasetDict."""
    tables = dict(loaded) if isinstance(loaded, Mapping) else {"": loaded}

    def reader(name: str, table: Any) -> Reader:
        label = f"{path} {name} row".replace("  ", " ")
        return lambda: (Record(f"{label} {number}", row) for number, row in enumerate(table))

    return {name: reader(name, table) for name, table in tables.items()}


def _datasets() -> Any:
    try:
        return importlib.import_module("datasets")
    except ImportError as error:
        raise ImportError(f"this dataset needs the datasets library: {install_command('datasets')}") from error
