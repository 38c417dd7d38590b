"""Data sets as they lie on disks: which file belongs to which split, and what is no data at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlinf.base.row_files import RowFileError
from rlinf.base.row_sources import split_readers


def lay(folder: Path, *names: str) -> None:
    """Write files of one row each, which is the file's own name."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps({"file": name}) + "\n")


def files(folder: Path, subset: str | None = None) -> dict[str, list[str]]:
    """Split -> the files that it has."""
    readers = split_readers(str(folder), subset)
    return {name: [str((record.row or {})["file"]) for record in read()] for name, read in readers.items()}


@pytest.mark.parametrize(
    ("train", "other", "split"),
    [
        ("train.jsonl", "test.jsonl", "test"),
        ("gsm8k_train.jsonl", "gsm8k_test.jsonl", "test"),
        ("math-train.jsonl", "math-dev.jsonl", "dev"),
        ("data.train.jsonl", "data.val.jsonl", "val"),
        ("training.jsonl", "testing.jsonl", "test"),
        ("data/train-00000-of-00002.jsonl", "data/validation-00000-of-00001.jsonl", "validation"),
        ("train/0000.jsonl", "test/0000.jsonl", "test"),
        ("data/train_sft-00000-of-00001.jsonl", "data/test_sft-00000-of-00001.jsonl", "test"),
    ],
)
def test_files_for_evaluation_are_never_read_as_training_data(
    tmp_path: Path, train: str, other: str, split: str
) -> None:
    lay(tmp_path, train, other)
    assert files(tmp_path) == {"train": [train], split: [other]}


def test_facts_about_a_data_set_and_hidden_files_hold_no_rows(tmp_path: Path) -> None:
    facts = ("dataset_infos.json", ".cache/huggingface/train.jsonl", "._train.jsonl")
    lay(tmp_path, "data/train-00000-of-00001.jsonl", "README.md", *facts)
    assert files(tmp_path) == {"train": ["data/train-00000-of-00001.jsonl"]}


def test_numbered_files_are_one_data_set_and_other_words_are_splits(tmp_path: Path) -> None:
    lay(tmp_path / "a", "0000.jsonl", "0001.jsonl")
    assert files(tmp_path / "a") == {"": ["0000.jsonl", "0001.jsonl"]}
    lay(tmp_path / "b", "easy.jsonl", "hard.jsonl")
    assert list(files(tmp_path / "b")) == ["easy", "hard"]


def test_a_subset_is_a_folder_in_the_data_set(tmp_path: Path) -> None:
    lay(tmp_path, "main/train-0.jsonl", "socratic/train-0.jsonl")
    (tmp_path / "main" / "train-0.jsonl").write_text('{"file": "main"}\n')
    assert files(tmp_path, "main") == {"train": ["main"]}
    with pytest.raises(RowFileError, match=r"no folder mian in it for subset: mian \(folders: main, socratic\)"):
        split_readers(str(tmp_path), "mian")


CARD = """---
license: mit
configs:
- config_name: main
  data_files:
  - {split: train, path: main/train-*}
  - {split: test, path: [main/test-0.jsonl]}
- config_name: socratic
  data_files: data/socratic*
---
# Sums
"""


def test_configurations_that_a_card_describes_are_data_sets_of_their_own(tmp_path: Path) -> None:
    lay(tmp_path, "main/train-0.jsonl", "main/test-0.jsonl", "data/socratic.jsonl")
    (tmp_path / "README.md").write_text(CARD)
    with pytest.raises(RowFileError, match=r"name one of them with subset \(main, socratic\)"):
        split_readers(str(tmp_path))
    assert files(tmp_path, "main") == {"train": ["main/train-0.jsonl"], "test": ["main/test-0.jsonl"]}
    assert files(tmp_path, "socratic") == {"socratic": ["data/socratic.jsonl"]}
    (tmp_path / "README.md").write_text(CARD.replace("config_name: main", "config_name: default"))
    assert list(files(tmp_path)) == ["socratic", "test", "train"]


def test_a_damaged_saved_data_set_is_named(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(RowFileError, match=f"{tmp_path}: cannot be read"):
        split_readers(str(tmp_path))
