"""`rlinf try` and `rlinf check` on pictures: tokens of each, and what `policy.vision.max_pixels` does to memory."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from vision_models import ARCHITECTURES

from rlinf.cli import main
from rlinf.data.pictures import address


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A random Qwen2-VL on questions with a picture of 56 x 56 pixels: 16 tokens of 14 x 14."""
    monkeypatch.chdir(tmp_path)
    uri = address(np.random.default_rng(0).integers(0, 255, (56, 56, 3), dtype=np.uint8))
    rows = [
        {"question": f"<image>What is {number} + 1?", "answer": str(number), "images": [uri]} for number in range(8)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    sections: dict[str, Any] = {
        "run": {"max_steps": 1, "dir": str(tmp_path / "run")},
        "env": {"id": "rlinf_envs:rlinf/Math-v0", "kwargs": {"path": "rows.jsonl", "image_field": "images"}},
        "policy": {
            "tokenizer": {"vocab_size": 300},
            "architecture": {"model_type": "qwen2_vl", **ARCHITECTURES["qwen2_vl"]},
        },
        "rollout": {"batch_size": 2, "max_new_tokens": 4, "sampler": "hf"},
        "algorithm": {"group_size": 64},
        "evaluation": {"size": 2},
    }
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(sections))
    return path


def bounds(text: str) -> dict[int, tuple[int, float]]:
    """max_pixels -> (tokens, megabytes of a learner rank)."""
    found = re.findall(r"max_pixels ([\d,]+): (\d+) tokens?, .*?at most\s+([\d.]+) MB", text, re.DOTALL)
    return {int(pixels.replace(",", "")): (int(tokens), float(memory)) for pixels, tokens, memory in found}


@pytest.mark.parametrize("command", ["try", "check"])
def test_fewer_pixels_are_fewer_tokens_and_less_memory(
    recipe: Path, command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    options = ["--tasks", "1"] if command == "try" else []
    assert main([command, str(recipe), *options]) == 0
    text = capsys.readouterr().out
    assert "16 tokens of pictures" in text if command == "try" else "picture 56x56: 16 tokens" in text
    found = bounds(text)
    assert {pixels: tokens for pixels, (tokens, _) in found.items()} == {3136: 16, 1568: 4, 784: 4}
    assert found[3136][1] > found[784][1]


def test_lines_for_programs_have_them_once_a_task(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["try", str(recipe), "--tasks", "1", "--samples", "2", "--json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert len(first["picture_costs"]) == 3
    assert second["picture_costs"] == []
    assert first["picture_tokens"] == 16
