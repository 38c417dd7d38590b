"""One tiny run for all faults: made once, copied for each."""

from __future__ import annotations

import json

import pytest
from stopped_run import SMALL, Stopped
from tiny_runs import mapping

from rlinf.config import load_mapping
from rlinf.train import run


@pytest.fixture(scope="session")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    base = tmp_path_factory.mktemp("faults")
    for name, steps in (("straight", 3), ("run", 2)):
        run(load_mapping(mapping(base / name, run={"max_steps": steps}, **SMALL)), report=False)
    summary = json.loads((base / "straight" / "summary.json").read_text())
    return Stopped(base / "run", summary["params_sha256"])
