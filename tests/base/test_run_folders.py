"""A path that is no run directory: the message names the run around it, or those in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlinf.base.run_folders import no_run


def test_the_run_that_was_meant_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = Path("runs/one")
    (run / "checkpoints").mkdir(parents=True)
    for name in ("config.yaml", "machine.json"):
        (run / name).write_text("{}")
    Path("empty").mkdir()
    for part in ("config.yaml", "checkpoints"):
        assert no_run(run / part) == f"{run / part} is no run directory: it is a part of one. Name runs/one"
    assert no_run(Path("runs")) == "runs is no run directory, but holds some: name runs/one"
    assert no_run(Path()) == ". is no run directory, but holds some: name runs/one"
    assert no_run(Path("empty")) == "empty is no run directory: it has no config.yaml"
    assert no_run(Path("nothing")) == "nothing is no run directory: there is no such folder"
