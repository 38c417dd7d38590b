"""Files whose contents are not what their name promises are reported as what they are."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import pytest

from rlinf.base.file_kinds import mistaken
from rlinf.base.row_files import RowFileError, read_rows

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
ROWS = b'{"question": "1?", "answer": "2"}\n'


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "a.csv", "a.json", "a.jsonl.gz"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (POINTER, "is a pointer of Git LFS, not the file itself: run `git lfs pull`"),
        (b"<!DOCTYPE html><html>Sign in</html>", "is a web page"),
        (lzma.compress(ROWS), "compressed by xz"),
        (bz2.compress(ROWS), "compressed by bzip2"),
        (ROWS.decode().encode("utf-16"), "text in UTF-16: save it as UTF-8"),
        (b"PK\x03\x04rest", "a zip archive or a workbook"),
    ],
)
def test_what_a_file_is_instead_is_named(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    if name == "a.json" and "UTF-16" in words:  # which JSON allows
        assert len(list(read_rows(tmp_path / name))) == 1
        return
    with pytest.raises(RowFileError, match=f"{name} is .*{words}|{name} {words}"):
        list(read_rows(tmp_path / name))


def test_a_compressed_file_without_its_ending_is_named_and_one_with_it_is_read(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.jsonl.gz"):
        (tmp_path / name).write_bytes(gzip.compress(ROWS))
    with pytest.raises(RowFileError, match=r"a\.jsonl is compressed by gzip: end its name in \.gz"):
        list(read_rows(tmp_path / "a.jsonl"))
    assert len(list(read_rows(tmp_path / "a.jsonl.gz"))) == 1
    assert mistaken(tmp_path / "a.jsonl.gz", expected=(b"\x1f\x8b",)) == ""


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").mkdir()
    with pytest.raises(RowFileError, match=r"a\.jsonl: Is a directory"):
        list(read_rows(tmp_path / "a.jsonl"))
