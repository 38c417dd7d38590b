"""A small valid file to be spoiled by one line at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from config_cases import MINIMAL, Write


@pytest.fixture
def minimal(tmp_path: Path) -> Path:
    """The file."""
    path = tmp_path / "minimal.yaml"
    path.write_text(yaml.safe_dump(MINIMAL))
    return path


@pytest.fixture
def write(tmp_path: Path, minimal: Path) -> Write:
    """Writes `run.yaml`, which extends the minimal file."""

    def _write(text: str) -> Path:
        path = tmp_path / "run.yaml"
        path.write_text(f"extends: minimal.yaml\n{text}")
        return path

    return _write
