"""The files of the Berkeley Function-Calling Leaderboard, as the package bfcl-eval ships them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from rlinf_envs.errors import DatasetError

TASKS = "BFCL_v4_{}.json"
ACCEPTED = "possible_answer"
"""Folder with a file of the same name for each file of tasks that wants calls."""


def data_folder(path: str | None = None) -> Path:
    """``path``, or the folder in the installed package.

    Raises:
        DatasetError: the package is not installed.
    """
    if path is not None:
        return Path(path)
    found = importlib.util.find_spec("bfcl_eval")
    if found is None or found.origin is None:
        raise DatasetError("the tasks are data of a package: pip install --no-deps bfcl-eval, or name their path")
    return Path(found.origin).parent / "data"


def rows(file: Path) -> list[dict[str, Any]]:
    """The lines of a file.

    Raises:
        DatasetError: it can't be read.
    """
    try:
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise DatasetError(f"{file}: {error}") from error


def accepted(folder: Path, category: str) -> dict[str, Any]:
    """The calls that the tasks of a category accept, by task."""
    return {row["id"]: row["ground_truth"] for row in rows(folder / ACCEPTED / TASKS.format(category))}
