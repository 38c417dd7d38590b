"""Splits of data files (:mod:`rlinf.base.row_files`), and of folders or names of the ``datasets`` library.

Nothing here depends on what a row means.
"""

from __future__ import annotations

import importlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf.base.packages import absent
from rlinf.base.parquet_rows import MAX_ROWS
from rlinf.base.row_files import SUFFIXES, Record, RowFileError, is_row_file, read_rows
from rlinf_envs.errors import DatasetError
from rlinf_envs.suggest import unknown

_EVAL_NAMES = ("eval", "validation", "valid", "dev", "test")
_METADATA = "metadata"
_SAVED = ("dataset_dict.json", "state.json", "dataset_info.json")


@dataclass(frozen=True)
class Selection:
    """The rows of one split. ``by_hash`` means that the caller must keep only one split."""

    records: Iterator[Record]
    by_hash: bool
    held_out: Iterable[Record] = ()
    """Of training rows: those of the dataset's own splits for evaluation, whose questions must not be trained on."""


Reader = Callable[[], Iterator[Record]]


def select(path: str, split: str | None, subset: str | None = None) -> Selection:
    """Select the rows of ``split``.

    A dataset with splits of its own gives them by name; "eval" is then the first of eval, validation, valid, dev,
    test. If a dataset has no split for evaluation, "train" and "eval" are the two parts by a hash of the
    question.

    Args:
        path: a file, a folder (saved by ``datasets``, or with one file per split), or a name on the Hugging Face
            hub.
        split: a split's name, "train", "eval", or None for everything there is (the train split, if there are
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
    if split == "train" and own_eval and "train" in readers:
        tests = [reader for name, reader in readers.items() if name in _EVAL_NAMES]
        held_out = itertools.chain.from_iterable(reader() for reader in tests)
        return Selection(_bounded(readers["train"](), path), by_hash=False, held_out=held_out)
    if split in readers and split != "train":
        return Selection(_bounded(readers[split](), path), by_hash=False)
    if split == "eval" and own_eval:
        return Selection(_bounded(readers[own_eval](), path), by_hash=False)
    if whole is not None and split is None:
        return Selection(_bounded(whole(), path), by_hash=False)
    if whole is not None and not own_eval and split in ("train", "eval"):
        return Selection(_bounded(whole(), path), by_hash=True)
    raise DatasetError(f"{path}: " + unknown("split", str(split), {*filter(None, readers), "train", "eval"}))


def _bounded(records: Iterator[Record], path: str) -> Iterator[Record]:
    for number, record in enumerate(records):
        if number == MAX_ROWS:
            raise DatasetError(f"{path} has more than {MAX_ROWS:,} rows of one split: take a part of them")
        yield record


def _readers(path: str, subset: str | None) -> dict[str, Reader]:
    """Split name -> function that reads it."""
    location = Path(os.path.expanduser(path))
    if location.is_file():
        return {"": lambda: _read_file(location)}
    if location.is_dir():
        if any((location / name).exists() for name in _SAVED):
            return _library_readers(_datasets().load_from_disk(str(location)), path)
        return _folder_readers(location)
    if is_row_file(location) or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", path):
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
    """Files such as train.jsonl or train-00000-of-00002.parquet, grouped by the word that they start with.

    A folder of pictures has a metadata file in the folder of each split, whose rows name the pictures.
    """
    groups: dict[str, list[Path]] = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file() and is_row_file(file):
            name = re.split(r"[-_.]", file.name)[0].lower()
            if name == _METADATA and file.parent != folder:
                name = file.parent.name.lower()
            groups.setdefault(name, []).append(file)
    if not groups:
        raise DatasetError(f"{folder}: no {', '.join(SUFFIXES)} file in this folder")

    def reader(files: list[Path]) -> Reader:
        return lambda: (record for file in files for record in _read_file(file))

    return {name: reader(files) for name, files in groups.items()}


def _read_file(file: Path) -> Iterator[Record]:
    try:
        yield from read_rows(file)
    except RowFileError as error:
        raise DatasetError(str(error)) from error


def _library_readers(loaded: Any, path: str) -> dict[str, Reader]:
    """Readers of a Dataset (one nameless split) or a DatasetDict."""
    tables = dict(loaded) if isinstance(loaded, Mapping) else {"": loaded}

    def reader(name: str, table: Any) -> Reader:
        label = f"{path} {name} row".replace("  ", " ")
        stored = _undecoded(table)
        return lambda: (Record(f"{label} {number}", row) for number, row in enumerate(stored))

    return {name: reader(name, table) for name, table in tables.items()}


def _undecoded(table: Any) -> Any:
    """Return the table with the pictures of its columns as they are stored: bytes and path."""
    library = _datasets()
    for name, feature in table.features.items():
        inner = getattr(feature, "feature", None)
        if isinstance(feature, library.Image):
            table = table.cast_column(name, library.Image(decode=False))
        elif isinstance(inner, library.Image):
            table = table.cast_column(name, library.Sequence(library.Image(decode=False)))
    return table


def _datasets() -> Any:
    try:
        return importlib.import_module("datasets")
    except ImportError as error:
        raise absent("datasets", "this dataset") from error
