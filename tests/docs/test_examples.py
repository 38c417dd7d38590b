"""The programs of examples/ work as described."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A program of the folder as a module, without running it."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def test_the_minimal_loop_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = load("minimal_grpo", monkeypatch)
    accuracies = module.train(module.Settings(iterations=2, prompts=4, group_size=4, imitation_steps=20))
    lines = capsys.readouterr().out.splitlines()
    assert ["greedy accuracy" in line for line in lines] == [True, False, False, True]
    # A few supervised steps are enough for some right answers.
    assert all(0.0 < accuracy < 1.0 for accuracy in accuracies)


def test_the_minimal_loop_stays_readable() -> None:
    assert len((EXAMPLES / "minimal_grpo.py").read_text(encoding="utf-8").splitlines()) <= 175
