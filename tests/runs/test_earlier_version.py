"""Run directories of the version before the present layout (commit ea840bc): each is evaluated, reported, converted
and resumed by the present code.

``recorded/*.json`` hold one such directory each: its files, two training iterations after the start, the experiment
that made it, and the last metrics of the same experiment run to iteration 4 without a stop by the code of that commit.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

from rlinf.cli import main

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.json"))
SINCE_CHANGED = {"cartpole": ["algorithm.gamma=1.0"]}
"""Defaults that have changed since: the run keeps its own if they are given, and otherwise a message names them."""
NOT_COMPARED = re.compile(r"^time/|^speed/|_s$|per_second|^verdict/|unparsable|/ci_(low|high)$")
# Intervals of means are Student's now; the earlier version took the normal distribution for few episodes, too.
"""Times, and how answers are counted that the length limit cut (as unparsable today: both earn 0)."""


@pytest.fixture(params=RECORDED, ids=lambda path: path.stem)
def record(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The recorded run, unpacked as ``run`` with ``experiment.yaml`` next to it in the current directory."""
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = json.loads(request.param.read_text())
    for name, content in found["files"].items():
        file = tmp_path / "run" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else _unpacked(content["zlib"]))
    (tmp_path / "experiment.yaml").write_text(found["experiment"])
    return {**found, "name": request.param.stem}


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def test_it_is_evaluated_reported_and_converted(record: dict[str, Any]) -> None:
    assert main(["eval", "run"]) == 0
    assert main(["report", "run"]) == 0
    assert "<html" in Path("run/report.html").read_text()
    assert main(["convert", "run", "policy"]) == 0
    assert Path("policy/model.safetensors").exists()


def test_it_continues_as_the_earlier_code_would_have(
    record: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", "experiment.yaml", "run.max_steps=4"]
    changed = SINCE_CHANGED.get(record["name"], [])
    if changed:
        assert main(command) == 2
        assert f"add to the command: {' '.join(changed)}" in " ".join(capsys.readouterr().err.split())
    assert main([*command, *changed]) == 0
    resumed = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    for expected, line in zip(record["uninterrupted"], resumed[-2:], strict=True):
        timeless = {name: value for name, value in expected.items() if not NOT_COMPARED.search(name)}
        assert {name: line.get(name) for name in timeless} == pytest.approx(timeless, rel=1e-4, abs=1e-6)
