"""The run that faults happen to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml
from tiny_runs import mapping

SMALL = {
    "sft": {"steps": 0},
    "rollout": {"batch_size": 2},
    "evaluation": {"size": 2},
    "logging": {"progress": "plain"},
}


@dataclass(frozen=True)
class Stopped:
    """A run that stopped after two of three steps."""

    folder: Path
    uninterrupted_sha256: str
    """Of the parameters after three steps without a stop."""

    def file(self, folder: Path, path: Path | None = None) -> Path:
        """The experiment's file for a copy of the run at ``folder``, with a third step to take."""
        path = path or folder.with_name(f"{folder.name}.yaml")
        path.write_text(yaml.safe_dump(mapping(folder, run={"max_steps": 3}, **SMALL)))
        return path
