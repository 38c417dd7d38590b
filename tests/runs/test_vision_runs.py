"""Runs of a vision-language model end to end: pictures in first and later turns, from tools, and from files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_runs
import yaml
from rlinf_envs.dialogue import Dialogue, End, Reply
from vision_models import ARCHITECTURES

from rlinf.config import load, load_mapping
from rlinf.data.pictures import opened, pictures_of

DETAILS = Path(__file__).parents[2] / "config" / "vision" / "details.yaml"
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

    def reply(self, response: str) -> Reply | End:
        self._turn += 1
        reward = float(sum(letter.isalpha() for letter in response))
        return End(reward) if self._turn == 2 else Reply([self._picture(), "And this? "], reward)

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


@pytest.mark.slow
def test_pictures_that_a_tool_shows_train(tmp_path: Path) -> None:
    more = {"sft": {"steps": 30, "batch_size": 8}, "rollout": {"max_new_tokens": 12}}
    mapping = _sections(tmp_path, 1, env={"id": "picture_envs:Closer"}, **more)
    tiny_runs.run(load_mapping(mapping, source="test"))
    gaps = [line.get("train/sampler_logprob_gap_max", 0.0) for line in tiny_runs.logged(tmp_path)]
    assert 0.0 < max(gaps) < 4e-5
    (file,) = (tmp_path / "samples").glob("step_000001*")
    written_out = "".join(json.dumps(json.loads(line), ensure_ascii=False) for line in file.read_text().splitlines())
    assert {opened(uri).size for uri in pictures_of(written_out)} == {(56, 28), (28, 28)}


@pytest.mark.slow
def test_a_policy_requests_pictures_from_a_tool_and_is_trained_behind_them(tmp_path: Path) -> None:
    short = ("run.max_steps=1", "sft.steps=60", "evaluation.size=8", "logging.samples_every=1", "logging.progress=none")
    tiny_runs.run(load(DETAILS, [f"run.dir={tmp_path}", "cluster.backend=local", *short]))
    (line,) = [line for line in tiny_runs.logged(tmp_path) if "train/sampler_logprob_gap_max" in line]
    assert line["train/sampler_logprob_gap_max"] < 4e-5
    (file,) = (tmp_path / "samples").glob("step_000001*")
    turns = [turn for sample in map(json.loads, file.read_text().splitlines()) for turn in sample["turns"]]
    called = [turn for turn in turns if turn["speaker"] == "policy" and '"zoom"' in turn["text"]]
    shown = [uri for turn in turns if turn["speaker"] == "environment" for uri in pictures_of(turn["text"])]
    assert len(called) >= len(shown) > 0
    assert {opened(uri).size for uri in shown} == {(32, 32)}


def _sections(folder: Path, steps: int, **sections: dict[str, Any]) -> dict[str, Any]:
    """A run on pictures of two turns over ``steps`` steps."""
    more = {"run": {"max_steps": steps}, "data": {"max_prompt_length": 64}, "policy": POLICY, **sections}
    mapping = tiny_runs.mapping(folder, **more)
    mapping["env"] = {"id": "test_vision_runs:Twice", "max_turns": 2, **sections.get("env", {})}
    mapping["evaluation"] = {"size": 4}
    return mapping


def _sha256(folder: Path) -> str:
    return str(json.loads((folder / "summary.json").read_text())["params_sha256"])


@pytest.mark.slow
def test_workers_and_ray_give_the_same_bits(tmp_path: Path) -> None:
    layouts: dict[str, dict[str, Any]] = {
        "one": {},
        "two": {"env": {"num_workers": 2}, "rollout": {"num_samplers": 2}},
        "ray": {"env": {"num_workers": 2}, "rollout": {"num_samplers": 2}, "cluster": {"backend": "ray"}},
    }
    for name, sections in layouts.items():
        tiny_runs.run(load_mapping(_sections(tmp_path / name, 2, **sections), source="test"))
    assert len({_sha256(tmp_path / name) for name in layouts}) == 1


@pytest.mark.slow
def test_a_run_on_pictures_that_is_killed_goes_on_bit_for_bit(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(_sections(tmp_path / "killed", 6)))
    command = [sys.executable, "-m", "rlinf.cli", "train", str(file)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and not any(line["step"] > 1 for line in _logged(tmp_path / "killed")):
            time.sleep(0.05)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    for name in ("killed", "straight"):
        tiny_runs.run(load_mapping(_sections(tmp_path / name, 6), source="test"))
    assert _sha256(tmp_path / "killed") == _sha256(tmp_path / "straight")


def _logged(folder: Path) -> list[dict[str, Any]]:
    return tiny_runs.logged(folder) if (folder / "metrics.jsonl").exists() else []
