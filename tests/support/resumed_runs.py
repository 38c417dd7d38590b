"""A run of two steps, made at once and with a break after the first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rlinf.config import load
from rlinf.train.run import run


def continued_run(file: str, settings: Sequence[str], folder: Path) -> Path:
    """Return the folder of the run with the break, whose last weights are those of the run at once."""

    def digest(name: str, steps: int) -> object:
        run(load(file, [*settings, f"run.dir={folder / name}", f"run.max_steps={steps}"]), report=False)
        return json.loads((folder / name / "summary.json").read_text())["params_sha256"]

    straight = digest("straight", 2)
    digest("cut", 1)
    assert digest("cut", 2) == straight
    return folder / "cut"
