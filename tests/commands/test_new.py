"""`rlinf new`: what is written runs, checks and passes its own test."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from rlinf.cli import main
from rlinf.commands.new import KINDS
from rlinf.config import load


@pytest.mark.parametrize("kind", KINDS)
def test_a_skeleton_works(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"my_{kind}_skeleton"
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["new", kind, name]) == 0
    assert f"rlinf train {name}.yaml" in capsys.readouterr().out
    load(f"{name}.yaml")
    test = importlib.import_module(f"test_{name}")
    tests = [function for found, function in vars(test).items() if found.startswith("test_")]
    assert tests
    for function in tests:
        function()
    for module in (name, f"test_{name}"):
        sys.modules.pop(module, None)


def test_nothing_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("mine")
    assert main(["new", "env", "mine"]) == 2
    assert "mine.yaml exists" in capsys.readouterr().err
    assert not Path("mine.py").exists()
    assert main(["new", "env", "My-Env"]) == 2
    assert "small letters, digits and _, as in my_env" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["new", "env", "a", "--folder", "file"], "file is a file: choose another folder"),
        (["new", "env", "a", "--folder", "/proc"], "/proc/a.py cannot be written (No such file or directory)"),
        (["new", "env", "2 envs.py"], "digits and _, as in _2_envs"),
        (["new", "reward", "random"], "Python finds another module of that name"),
    ],
)
def test_a_folder_or_a_name_that_is_taken_is_refused(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    assert main(words) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
