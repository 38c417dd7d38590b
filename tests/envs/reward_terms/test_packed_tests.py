"""Packed tests are read without running the pickle in them."""

from __future__ import annotations

import base64
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest
from rlinf_envs.reward_terms.packed_tests import unpacked


def packed(value: Any, protocol: int = 4) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value, protocol))).decode()


class Harm:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_texts_of_every_protocol(protocol: int) -> None:
    for text in ('[{"input": "1", "output": "é"}]', "x" * 100_000):
        assert unpacked(packed(text, protocol)) == text


@pytest.mark.parametrize("text", ["assert f(1) == 2", '[{"input": ""}]', "pass", "", "YWJj"])
def test_other_texts_are_not_packed(text: str) -> None:
    assert unpacked(text) is None


def test_a_pickle_of_code_is_refused_and_does_not_run(tmp_path: Path) -> None:
    file = tmp_path / "harmed"
    with pytest.raises(ValueError, match="more than one text"):
        unpacked(packed(Harm(file)))
    assert not file.exists()
    pickle.loads(pickle.dumps(Harm(file)))
    assert file.exists()


@pytest.mark.parametrize("value", [["a", "b"], {"a": 1}, 1, b"text"])
def test_other_values_than_a_text_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="packs a pickle"):
        unpacked(packed(value))
