"""Rows of a data set by split: of a file, a folder of files, a folder saved by ``datasets``, or a name on the hub.

Nothing here depends on what a row means.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from rlinf.base.near_paths import near_path
from rlinf.base.packages import absent
from rlinf.base.row_files import SUFFIXES, Record, RowFileError, is_row_file, read_rows, without_absent
from rlinf.base.table_cells import cell_changes, changed
from rlinf.base.yaml_text import read_yaml

EVALUATION = ("eval", "validation", "valid", "val", "dev", "test")
"""Splits for evaluation, the preferred one first."""
TRAINING = "train"
_OTHER_WORDS = {"training": TRAINING, "evaluation": "eval", "testing": "test"}
_SPLIT_OF = {**{name: name for name in (TRAINING, *EVALUATION)}, **_OTHER_WORDS}
_SAVED = ("dataset_dict.json", "state.json")
_FACTS = ("dataset_dict.json", "state.json", "dataset_info.json", "dataset_infos.json")
"""Files of the ``datasets`` library about rows, which hold none."""

Reader = Callable[[], Iterator[Record]]


def split_readers(path: str, subset: str | None = None) -> dict[str, Reader]:
    """Split name -> function that reads its rows; the name is empty if there are no splits.

    Files in a folder belong to the split in their name or in that of a folder around them: ``train.jsonl``,
    ``gsm8k_test.jsonl``, ``test/0000.parquet``, ``train-00000-of-00002.parquet``. Others are a split by the word that
    they begin with.

    Args:
        path: a file, a folder, or a name on the Hugging Face hub.
        subset: configuration of a hub data set; of a folder, one that its README.md describes, or the folder in it.

    Raises:
        RowFileError: there is no such data set; also raised while a reader reads.
        ImportError: ``datasets`` or ``pyarrow`` is needed and not installed.
    """
    location = Path(os.path.expanduser(path))
    if location.is_file():
        return {"": lambda: read_rows(location)}
    if location.is_dir():
        described = _described(location)
        if subset in described:
            return _folder_readers(location, described[subset])
        if subset is None and len(described) > 1:
            raise RowFileError(
                f"{location}: its README.md describes several data sets: name one of them with subset "
                f"({', '.join(described)}), or the path of its files"
            )
        if subset is None or (location / subset).is_dir():
            location = location if subset is None else location / subset
        else:
            inside = ", ".join(sorted(child.name for child in location.iterdir() if child.is_dir())) or "none"
            raise RowFileError(
                f"{location}: there is no folder {subset} in it for subset: {subset} (folders: {inside})"
            )
        if any((location / name).exists() for name in _SAVED):
            return _library_readers(lambda library: library.load_from_disk(str(location)), path, "cannot be read")
        return _folder_readers(location)
    if is_row_file(location) or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", path):
        raise RowFileError(f"{path}: there is no such file or folder. {near_path(location)}")
    missing = "no such file or folder here, and the hub did not give it either"
    return _library_readers(lambda library: library.load_dataset(path, subset), path, missing)


def _described(folder: Path) -> dict[str, set[Path]]:
    """Return the files of each configuration that a folder's README.md describes, as data sets of the hub have it.

    Empty without a description, and if one of them is what is read by default.
    """
    card = folder / "README.md"
    beginning = card.read_text(encoding="utf-8", errors="replace").split("\n---", 1)[0] if card.is_file() else ""
    try:
        facts = read_yaml(beginning.removeprefix("---")) if beginning.startswith("---") else None
    except yaml.YAMLError:
        return {}
    configs = facts.get("configs") if isinstance(facts, dict) else None
    results: dict[str, set[Path]] = {}
    for config in configs if isinstance(configs, list) else ():
        patterns = _patterns(config.get("data_files")) if isinstance(config, dict) else []
        if patterns and not config.get("default") and config.get("config_name") != "default":
            results[str(config.get("config_name"))] = {file for one in patterns for file in folder.glob(one)}
    return results if len(results) == len(configs or ()) else {}


def _patterns(written: Any) -> list[str]:
    """Return the patterns in ``data_files``: one, a list of them, or one or several for each split."""
    if isinstance(written, list):
        return [pattern for one in written for pattern in _patterns(one)]
    if isinstance(written, dict):
        return _patterns(written.get("path"))
    return [written] if isinstance(written, str) and not written.startswith("/") else []


def _folder_readers(folder: Path, chosen: Collection[Path] | None = None) -> dict[str, Reader]:
    """Readers of a folder's files, or of the ``chosen`` ones in it."""
    groups: dict[str, list[Path]] = {}
    for file in sorted(folder.rglob("*") if chosen is None else chosen):
        inside = file.relative_to(folder).parts
        hidden = any(part.startswith(".") for part in inside)
        if not hidden and is_row_file(file) and file.name not in _FACTS and file.is_file():
            groups.setdefault(_split_of(inside), []).append(file)
    if not groups:
        raise RowFileError(f"{folder}: no {', '.join(SUFFIXES)} file in this folder")

    def reader(files: list[Path]) -> Reader:
        return lambda: (record for file in files for record in read_rows(file))

    return {name: reader(files) for name, files in groups.items()}


def _split_of(inside: tuple[str, ...]) -> str:
    """Return the split of a file, by its name and the folders around it; numbers alone name none.

    >>> _split_of(("gsm8k_test.jsonl",)), _split_of(("test", "0000.parquet")), _split_of(("0000.parquet",))
    ('test', 'test', '')
    """
    for part in reversed(inside):
        known = [_SPLIT_OF[word] for word in re.split(r"[-_. ]", part.lower()) if word in _SPLIT_OF]
        if known:
            return known[0]
    first = re.split(r"[-_.]", inside[-1].lower())[0]
    return "" if first.isdecimal() else first


def _library_readers(load: Callable[[Any], Any], path: str, problem: str) -> dict[str, Reader]:
    """Readers of what the ``datasets`` library loads: a Dataset (one nameless split) or a DatasetDict."""
    library = _datasets()
    try:
        loaded = load(library)
    except ImportError:
        raise
    except Exception as error:  # of the library, of the hub, of the file system
        raise RowFileError(f"{path}: {problem} ({type(error).__name__}: {error})") from error
    tables = dict(loaded) if isinstance(loaded, Mapping) else {"": loaded}

    def reader(name: str, table: Any) -> Reader:
        label = f"{path} {name} row".replace("  ", " ")
        stored = _undecoded(table)
        changes = cell_changes(importlib.import_module("pyarrow"), stored.features.arrow_schema)
        return lambda: (
            Record(f"{label} {number}", without_absent(changed(row, changes))) for number, row in enumerate(stored)
        )

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
