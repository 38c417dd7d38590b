"""Kinds of files by their first bytes, whatever their names: pointers of Git LFS, web pages, other compressions."""

from __future__ import annotations

from pathlib import Path

_LFS = b"version https://git-lfs.github.com/spec/"
_POINTER = "a pointer of Git LFS, not the file itself: run `git lfs pull` in the folder that was cloned"
_UTF8 = "text in UTF-16: save it as UTF-8"
_KINDS: tuple[tuple[bytes, str], ...] = (
    (_LFS, _POINTER),
    (b"<!doctype html", "a web page: download the file itself"),
    (b"<html", "a web page: download the file itself"),
    (b"\x1f\x8b", "compressed by gzip: end its name in .gz"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd: unpack it, or compress it with gzip"),
    (b"\xfd7zXZ", "compressed by xz: unpack it, or compress it with gzip"),
    (b"BZh", "compressed by bzip2: unpack it, or compress it with gzip"),
    (b"PK\x03\x04", "a zip archive or a workbook: unpack it, or save the table as .csv"),
    (b"PAR1", "a Parquet file: end its name in .parquet"),
    (b"ARROW1", "an Arrow file: write it as .parquet"),
    (b"\xff\xfe", _UTF8),
    (b"\xfe\xff", _UTF8),
)
_READ = max(len(mark) for mark, _ in _KINDS)


def mistaken(file: Path, *, expected: tuple[bytes, ...] = ()) -> str:
    """Describe what ``file`` is instead, if it begins as another kind of file does; empty if it does not.

    ``expected``: how a file of its name may begin, if it is no text in UTF-8.
    """
    with file.open("rb") as opened:
        first = opened.read(_READ)
    if first.startswith(expected):
        return ""
    return next((f"{file} is {what}" for mark, what in _KINDS if first.lower().startswith(mark.lower())), "")


def is_lfs_pointer(file: Path) -> bool:
    """Return whether a file holds the few lines that Git LFS leaves instead of a large file."""
    with file.open("rb") as opened:
        return opened.read(len(_LFS)) == _LFS
