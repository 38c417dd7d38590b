"""Sweep files over a run so small that it can be made in a test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from tiny_runs import mapping

from rlinf.config import ConfigErrors
from rlinf.sweep.load import Sweep, read_sweep_file


def write_base(folder: Path, **sections: Mapping[str, Any]) -> Path:
    path = folder / "base.yaml"
    path.write_text(yaml.safe_dump(mapping(folder / "run", **sections)))
    return path


def write_sweep_file(folder: Path, text: str) -> Path:
    """A sweep file next to its base; the sweep directory is `out` in the same folder."""
    write_base(folder, evaluation={"every": 1}, sft={"steps": 0})
    path = folder / "sweep.yaml"
    path.write_text(f"base: base.yaml\ndir: {folder}/out\nmetric: rollout/response_length\n{text}")
    return path


def load_sweep(path: Path) -> Sweep:
    """The sweep in a file; raises ConfigErrors for its own mistakes, without looking at its trials."""
    sweep, problems = read_sweep_file(path)
    if problems:
        raise ConfigErrors(problems)
    return sweep
