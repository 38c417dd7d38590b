"""One tiny run for all faults: made once, copied for each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from rlinf.config import load_mapping
from rlinf.train import run
from tests.train.tiny_runs import mapping


@dataclass(frozen=True)
class Stopped:
    """A run that stopped after two of three steps."""

    folder: Path
    uninterrupted_sha256: str
    """Of the parameters after three steps without a stop."""

    def file(self, folder: Path, path: Path | None = None) -> Path:
        """The experiment's file for a copy of the run at ``folder``, with a third step to take."""
        path = path or folder.with_name(f"{folder.name}.yaml")
        path.write_text(yaml.safe_dump(mapping(folder, run={"max_steps": 3}, **_SMALL)))
        return path


_SMALL = {
    "sft": {"steps": 0},
    "rollout": {"batch_size": 2},
    "evaluation": {"size": 2},
    "logging": {"progress": "plain"},
}


@pytest.fixture(scope="session")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    base = tmp_path_factory.mktemp("faults")
    for name, steps in (("straight", 3), ("run", 2)):
        run(load_mapping(mapping(base / name, run={"max_steps": steps}, **_SMALL)), report=False)
    summary = json.loads((base / "straight" / "summary.json").read_text())
    return Stopped(base / "run", summary["params_sha256"])
