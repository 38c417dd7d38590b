"""Failures of text environments are counted over the whole run, however often it is resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import pytest
import text_envs
from tiny_runs import config, logged, run

from rlinf.base.errors import UserError


class Breaks(text_envs.LinesEnv):
    """Fails over the first of its conversations."""

    def step_row(
        self, row: int, response: str, *, cut: bool = False
    ) -> tuple[str, float, bool, bool, dict[str, object]]:
        if row == 0:
            raise ValueError("no such tool")
        reward = float(len(response) % 2 == 0)
        return "", reward, True, False, {"verdict": "correct" if reward else "wrong"}


gymnasium.register("Breaks-v0", vector_entry_point=f"{__name__}:Breaks")


def settings(folder: Path, steps: int, **env: Any) -> Any:
    folder.parent.mkdir(exist_ok=True)
    return config(
        folder,
        env={"id": f"{__name__}:Breaks-v0", "kwargs": text_envs.lines(folder.parent), **env},
        run={"max_steps": steps},
        sft={"steps": 0},
        evaluation={"size": 0, "env_kwargs": None},
    )


def test_a_resumed_run_counts_on_from_its_checkpoint(tmp_path: Path) -> None:
    counts = {}
    for name, parts in (("straight", [4]), ("resumed", [2, 4])):
        for steps in parts:
            run(settings(tmp_path / name, steps))
        counts[name] = [line["env/failures"] for line in logged(tmp_path / name)[1:]]
    assert counts["resumed"] == counts["straight"] == [1.0, 2.0, 3.0, 4.0]
    run(settings(tmp_path / "limited", 2, max_failures=2))
    with pytest.raises(UserError, match=r"env\.max_failures allows 2"):
        run(settings(tmp_path / "limited", 4, max_failures=2))
