"""The run directory: what a shell would have filled in."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from config_cases import MINIMAL, mistakes

from rlinf.config import load


def write(folder: Path, directory: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump({**MINIMAL, "run": {"dir": directory}}))
    return path


def test_the_home_folder_is_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert load(write(tmp_path, "~/runs/{name}")).facts.run_dir == "/home/me/runs/run"
    assert load(write(tmp_path, "a"), ["run.dir=~/b"]).facts.run_dir == "/home/me/b"


def test_a_variable_of_the_shell_is_refused(tmp_path: Path) -> None:
    message = mistakes(write(tmp_path, "$SCRATCH/runs"))
    assert "run.dir: $SCRATCH/runs names a variable of the shell, which is not filled in here." in message
    assert "Write ${oc.env:NAME} for an environment variable" in message
    assert "run.name: $USER names a variable of the shell" in mistakes(write(tmp_path, "a"), "run.name=$USER")
