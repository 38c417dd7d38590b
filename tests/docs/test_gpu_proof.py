"""`make gpu`: parts with a time limit, results that are continued, and a page; no GPU is needed here."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(ROOT / "benchmarks")  # for this import alone: names there are also those of test helpers
    import gpu


def options(folder: Path, **others: Any) -> Namespace:
    return Namespace(**{"part": None, "again": False, "rehearse": False, "out": folder, "write": None, **others})


@pytest.fixture(autouse=True)
def without_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "card_name", lambda: None)
    monkeypatch.setattr(gpu, "commit", lambda: "abc")


def test_without_a_card_each_part_prints_what_it_would_have_proved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = gpu.collect(options(tmp_path))
    assert {one.status for one in results.values()} == {"skipped"}
    output, page = capsys.readouterr().out, (tmp_path / "index.md").read_text()
    for part in gpu.PARTS.values():
        assert f"would have proved that {part.proves}" in output
        assert f"would have proved that {part.proves}" in page
    assert f"0 of {len(gpu.PARTS)} parts passed" in page


def test_parts_that_have_a_result_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def run_part(name: str, *, card: bool, limit_s: float) -> gpu.Result:
        assert card
        assert limit_s <= gpu.PART_S
        ran.append(name)
        status = "failed" if name == "parity" else "passed"
        return gpu.Result(status, gpu.PARTS[name].proves, 1.0, "another loss", {"figure": 2.0}, "abc")

    monkeypatch.setattr(gpu, "card_name", lambda: "a GPU")
    monkeypatch.setattr(gpu, "missing", lambda *_arguments, **_options: "")
    monkeypatch.setattr(gpu, "run_part", run_part)
    gpu.collect(options(tmp_path, part=["device", "parity"]))
    gpu.collect(options(tmp_path))
    assert ran == ["device", "parity", *[name for name in gpu.PARTS if name != "device"]]
    saved = json.loads((tmp_path / "results.json").read_text())
    assert saved["card"] == "a GPU"
    page = (tmp_path / "index.md").read_text()
    assert "Does not hold" in page
    assert "another loss" in page
    assert "figure 2" in page


def test_a_part_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "__file__", "-c")  # python -c --child ...: a program that ends at once
    assert gpu.run_part("device", card=False, limit_s=60).status == "failed"
    real = gpu.subprocess.Popen
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    monkeypatch.setattr(gpu.subprocess, "Popen", lambda _command, **given: real(sleeper, **given))
    began = time.monotonic()
    result = gpu.run_part("device", card=False, limit_s=0.5)
    assert (result.status, result.why) == ("failed", "not over after 0 s")
    assert time.monotonic() - began < 30


@pytest.mark.slow
@pytest.mark.parametrize("part", ["device", "simulator"])
def test_a_rehearsed_part_runs_its_commands(part: str) -> None:
    result = gpu.run_part(part, card=False, limit_s=600)
    assert result.status == "rehearsed", result.why
    assert result.figures


def test_a_rehearsal_skips_what_needs_a_package_that_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda _name: None)
    skipped = {name for name, part in gpu.PARTS.items() if gpu.missing(part, card=False, rehearse=True)}
    assert skipped == {"engine", "batch_simulator"}
    needed = {name for name, part in gpu.PARTS.items() if gpu.missing(part, card=True, rehearse=False)}
    assert needed == {"engine", "experts", "batch_simulator"}


def test_the_first_difference_of_two_runs_is_named(tmp_path: Path) -> None:
    one = gpu.Run(
        tmp_path, [{"step": 1.0, "train/loss": 0.5, "time/step_s": 1.0}, {"step": 2.0, "train/loss": 0.25}], ""
    )
    other = gpu.Run(
        tmp_path, [{"step": 1.0, "train/loss": 0.5, "time/step_s": 9.0}, {"step": 2.0, "train/loss": 0.3}], ""
    )
    assert gpu.first_difference(one, other) == "from step 2 on: train/loss"
    assert gpu.first_difference(one, one) == "in their weights alone"
