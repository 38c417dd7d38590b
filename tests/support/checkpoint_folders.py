"""Folders of small checkpoints, each written when a test first needs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


def written_folders(factory: pytest.TempPathFactory, write: Callable[[str, Path], object]) -> Callable[[str], Path]:
    """Return the folder of a case; ``write`` fills it."""
    made: dict[str, Path] = {}

    def folder(case: str) -> Path:
        if case not in made:
            made[case] = factory.mktemp(case)
            write(case, made[case])
        return made[case]

    return folder
