"""The files of the Berkeley Function-Calling Leaderboard, as the package bfcl-eval ships them."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from rlinf_envs.errors import DatasetError

Form = Literal["schema", "signature"]

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
    result = importlib.util.find_spec("bfcl_eval")
    if result is None or result.origin is None:
        raise DatasetError("the tasks are data of a package: pip install --no-deps bfcl-eval, or name their path")
    return Path(result.origin).parent / "data"


def rows(file: Path) -> list[dict[str, Any]]:
    """Read the lines of a file.

    Raises:
        DatasetError: it can't be read.
    """
    try:
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise DatasetError(f"{file}: {error}") from error


def accepted(folder: Path, category: str) -> dict[str, Any]:
    """Read the calls that the tasks of a category accept, by task."""
    return {row["id"]: row["ground_truth"] for row in rows(folder / ACCEPTED / TASKS.format(category))}


def described(function: Mapping[str, Any], form: Form) -> str:
    """Describe a function as prompts show it: everything about it, or in fewer tokens its arguments and their types.

    >>> about = {"type": "dict", "properties": {"base": {"type": "integer"}, "unit": {"type": "string"}}}
    >>> described({"name": "area", "parameters": about | {"required": ["base"]}}, "signature")
    'area(base: integer, unit: string = ...)'
    """
    if form == "schema":
        return json.dumps(function)
    parameters = function["parameters"]
    arguments = ", ".join(
        f"{name}: {_type(about)}{'' if name in parameters.get('required', ()) else ' = ...'}"
        for name, about in parameters.get("properties", {}).items()
    )
    return f"{function['name']}({arguments})"


def _type(about: Mapping[str, Any]) -> str:
    if "enum" in about:
        return " | ".join(map(json.dumps, about["enum"]))
    return (
        f"{about.get('type', 'any')} of {_type(about['items'])}" if "items" in about else str(about.get("type", "any"))
    )
