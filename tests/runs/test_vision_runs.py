"""Runs of a vision-language model end to end: pictures in first and later turns, from tools, and from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_runs
from rlinf_envs.dialogue import Dialogue, End, Say
from vision_models import ARCHITECTURES

from rlinf.config import load_mapping

POLICY: dict[str, Any] = {
    "tokenizer": {"vocab_size": 300},
    "architecture": {"model_type": "qwen2_vl", **ARCHITECTURES["qwen2_vl"]},
}


class Twice(Dialogue):
    """A picture, and another one behind the first response; letters earn a reward."""

    max_turns = 2

    def begin(self) -> list[Any]:
        self._turn = 0
        return [self._picture(), "Which? "]

    def reply(self, response: str) -> Say | End:
        self._turn += 1
        reward = float(sum(letter.isalpha() for letter in response))
        return End(reward) if self._turn == 2 else Say([self._picture(), "And this? "], reward)

    def demonstrate(self, observation: str) -> str:
        return "red"

    def _picture(self) -> np.ndarray:
        return self.np_random.integers(0, 255, (28, 28, 3), dtype=np.uint8)


@pytest.mark.parametrize("lora", [0, pytest.param(4, marks=pytest.mark.slow)])
def test_pictures_of_first_and_later_turns_train(tmp_path: Path, lora: int) -> None:
    policy = {**POLICY, "lora": {"rank": lora}} if lora else POLICY
    mapping = tiny_runs.mapping(tmp_path, policy=policy, run={"max_steps": 1}, data={"max_prompt_length": 64})
    mapping["env"] = {"id": "test_vision_runs:Twice", "max_turns": 2}
    mapping["evaluation"] = {"size": 4, "pictures": ["blank", "swapped"]}
    tiny_runs.run(load_mapping(mapping, source="test"))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    gaps = [line["train/sampler_logprob_gap_max"] for line in lines if "train/sampler_logprob_gap_max" in line]
    assert gaps
    assert max(gaps) < 4e-5
    evaluated = next(line for line in reversed(lines) if "eval/accuracy" in line)
    assert {"eval/blank_pictures", "eval/swapped_pictures"} <= set(evaluated)
