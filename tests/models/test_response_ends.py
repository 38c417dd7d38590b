"""The end tokens that a folder declares, and how an export adds to them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlinf.base.errors import UserError
from rlinf.models.response_ends import declare_ends, declared_ends


def folder(tmp_path: Path, config: object, generation: object = None) -> Path:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2", "eos_token_id": config}))
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": generation, "top_k": 3}))
    return tmp_path


def test_both_files_declare_ends(tmp_path: Path) -> None:
    assert declared_ends(str(folder(tmp_path, 1))) == {1}
    assert declared_ends(str(folder(tmp_path, 1, [2, 5]))) == {1, 2, 5}


def test_ends_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    folder(tmp_path, 1, "<|im_end|>")
    with pytest.raises(UserError, match=r"eos_token_id of config\.json or generation_config\.json is no token id"):
        declared_ends(str(tmp_path))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2,')
    with pytest.raises(UserError, match=r"generation_config\.json is damaged"):
        declared_ends(str(tmp_path))


def test_an_export_lists_what_was_taught_and_keeps_the_rest(tmp_path: Path) -> None:
    declare_ends([1, 7], folder(tmp_path, 1, 1))
    found = json.loads((tmp_path / "generation_config.json").read_text())
    assert found == {"eos_token_id": [1, 7], "top_k": 3}


def test_a_folder_that_declares_them_all_stays_as_it_is(tmp_path: Path) -> None:
    saved = folder(tmp_path, 1)
    declare_ends([1], saved)
    assert not (saved / "generation_config.json").exists()
    declare_ends([1, 4], saved)
    before = (saved / "generation_config.json").read_text()
    declare_ends([4], saved)
    assert (saved / "generation_config.json").read_text() == before
