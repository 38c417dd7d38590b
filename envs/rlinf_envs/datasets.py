"""Splits of data sets (:mod:`rlinf.base.row_sources`) for training and for evaluation."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rlinf.base.parquet_rows import MAX_ROWS
from rlinf.base.row_files import Record as Record
from rlinf.base.row_files import RowFileError
from rlinf.base.row_sources import EVALUATION, TRAINING, split_readers
from rlinf_envs.errors import DatasetError
from rlinf_envs.suggest import unknown

UNREAD = "columns that are not read"
"""The label of a note on rows."""
_LISTED = 12


@dataclass(frozen=True)
class Selection:
    """The rows of one split. ``by_hash`` means that the caller must keep only one split."""

    records: Iterator[Record]
    by_hash: bool
    held_out: Iterable[Record] = ()
    """Of training rows: those of the dataset's own splits for evaluation, whose questions must not be trained on."""


def select(path: str, split: str | None, subset: str | None = None) -> Selection:
    """Select the rows of ``split``.

    A dataset with splits of its own gives them by name; "eval" is then the first of eval, validation, valid, val,
    dev, test. If a dataset has no split for evaluation, "train" and "eval" are the two parts by a hash of the
    question.

    Args:
        path: a file, a folder (saved by ``datasets``, or with files by split), or a name on the Hugging Face hub.
        split: a split's name, "train", "eval", or None for everything there is (the train split, if there are
            several).
        subset: configuration name of a hub dataset ("main" of openai/gsm8k), or a folder in ``path``.

    Raises:
        DatasetError: no such path or split.
        ImportError: ``datasets`` or ``pyarrow`` is needed and not installed.
    """
    if not isinstance(path, str) or not path:
        raise DatasetError(f"env.kwargs.path must name a file, a folder or a dataset of the hub, not {path!r}")
    try:
        readers = split_readers(path, subset)
    except RowFileError as error:
        raise DatasetError(str(error)) from error
    own_eval = next((name for name in EVALUATION if name in readers), None)
    every = len(readers) == 1 or not {TRAINING, *EVALUATION} & readers.keys()
    whole = (lambda: (record for read in readers.values() for record in read())) if every else readers.get(TRAINING)
    if split == "train" and own_eval and TRAINING in readers:
        tests = [reader for name, reader in readers.items() if name in EVALUATION]
        held_out = itertools.chain.from_iterable(_bounded(reader(), path) for reader in tests)
        return Selection(_bounded(readers[TRAINING](), path), by_hash=False, held_out=held_out)
    if split in readers and split != "train":
        return Selection(_bounded(readers[split](), path), by_hash=False)
    if split == "eval" and own_eval:
        return Selection(_bounded(readers[own_eval](), path), by_hash=False)
    if whole is not None and split is None:
        return Selection(_bounded(whole(), path), by_hash=False)
    if whole is not None and not own_eval and split in ("train", "eval"):
        return Selection(_bounded(whole(), path), by_hash=True)
    raise DatasetError(f"{path}: " + unknown("split", str(split), {*filter(None, readers), "train", "eval"}))


def counted(counts: Mapping[str, int], everywhere: int) -> str:
    """Names with their counts, the commonest first; a name that ``everywhere`` rows have stands alone."""
    ranked = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    shown = [name if count == everywhere else f"{name} ({count:,})" for name, count in ranked[:_LISTED]]
    return ", ".join(shown) + (", ..." if len(ranked) > _LISTED else "")


def _bounded(records: Iterator[Record], path: str) -> Iterator[Record]:
    try:
        for number, record in enumerate(records):
            if number == MAX_ROWS:
                raise DatasetError(f"{path} has more than {MAX_ROWS:,} rows of one split: take a part of them")
            yield record
    except RowFileError as error:
        raise DatasetError(str(error)) from error
