"""What is reported of a path that does not exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlinf.base.errors import UserError
from rlinf.base.near_paths import near_path
from rlinf.base.row_files import RowFileError
from rlinf.base.row_sources import split_readers
from rlinf.datasets.conversation_files import read_pairs
from rlinf.datasets.robot_data.dataset import DatasetError
from rlinf.datasets.robot_data.reading import count_episodes, read_dataset


def test_the_nearest_name_of_the_folder_is_proposed(tmp_path: Path) -> None:
    (tmp_path / "Train.jsonl").write_text("{}")
    assert near_path(tmp_path / "trian.jsonl") == f"Did you mean {tmp_path / 'Train.jsonl'}?"
    assert near_path(tmp_path / "x") == f"Give the path of something in {tmp_path}."
    (tmp_path / "link.jsonl").symlink_to("gone.jsonl")
    assert near_path(tmp_path / "link.jsonl") == "It is a link to gone.jsonl, which does not exist."
    assert near_path(tmp_path / "no" / "x").startswith(f"There is no folder {tmp_path / 'no'} here; paths start at")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("https://a.b/c.jsonl", "an address"),
        ("file:///data/a.jsonl", "Write /data/a.jsonl: the path alone."),
        ("https://huggingface.co/datasets/openai/gsm8k/tree/main", "Write openai/gsm8k"),
        ("hf://Qwen/Qwen2.5-0.5B", "Write Qwen/Qwen2.5-0.5B"),
        ("$DATA/c.jsonl", r"${oc.env:NAME}"),
        ("data/*.jsonl", "name the folder"),
    ],
)
def test_notations_of_shells_and_the_web_are_named(path: str, words: str) -> None:
    assert words in near_path(Path(path))


def test_readers_of_data_state_first_that_the_path_does_not_exist(tmp_path: Path) -> None:
    for name in ("pairs.jsonl", "reach", "demo.hdf5"):
        (tmp_path / name).write_text("")
    with pytest.raises(
        RowFileError, match=r"pair\.jsonl: there is no such file or folder\. Did you mean .*pairs\.jsonl"
    ):
        split_readers(str(tmp_path / "pair.jsonl"))
    with pytest.raises(UserError, match=r"pair\.jsonl: there is no such file"):
        read_pairs(str(tmp_path / "pair.jsonl"))
    with pytest.raises(DatasetError, match=r"reahc does not exist\. Did you mean .*reach\?"):
        read_dataset(tmp_path / "reahc")
    with pytest.raises(DatasetError, match=r"demos\.hdf5 does not exist\. Did you mean .*demo\.hdf5\?"):
        count_episodes(f"{tmp_path}/demos.hdf5#train")
    with pytest.raises(DatasetError, match=r"reach is no robot dataset"):
        read_dataset(tmp_path / "reach")
