"""Real vLLM engines and servers of tiny vision-language models on a CPU, against the learner's log-probabilities."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from picture_engine import Pictured
from vllm_server import served

from rlinf.models.weight_update import WeightLayout
from rlinf.samplers.server import ServerSampler
from rlinf.schema.rollout import ServerConfig

SUPPORT = Path(__file__).parents[1] / "support"
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]


def path_of(model_type: str) -> str:
    """PYTHONPATH of a process with an engine: vLLM's classes for Qwen's models import torchvision, for films."""
    more = [str(SUPPORT / "torchvision_stand_in")] if model_type.startswith("qwen") else []
    return os.pathsep.join([*filter(None, sys.path), *more])


def check(found: dict[str, Any]) -> None:
    assert found["gap"] < 4e-5
    assert found["gap_of_new_weights"] < 4e-5
    assert found["gap_with_penalty"] < 4e-5
    assert found["pictures_differ"]
    assert found["excluded_drawn"] == 0
    assert found["unlike"] == []


@pytest.mark.parametrize("model_type", ["idefics3", "qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_an_engine_agrees_with_the_learner(model_type: str, tmp_path: Path) -> None:
    command = [sys.executable, str(SUPPORT / "picture_engine.py"), model_type, str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": path_of(model_type)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    check(found)
    assert found["unread"] == []


def test_a_server_agrees_with_the_learner(tmp_path: Path) -> None:
    """Of a family whose processor works without torchvision: here the server reads the pictures itself."""
    pictured = Pictured("idefics3", tmp_path)
    features = pictured.reader.pixels(pictured.shown[0][0]).count
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_seq_len": features}))
    with served(tmp_path, path=path_of("idefics3")) as running:
        sampler = ServerSampler(
            ServerConfig(running.url, timeout_s=200.0),
            eos_token_ids=[1],
            seed=7,
            max_model_len=128,
            layout=WeightLayout.of_model(pictured.model),
            sight=pictured.sight,
        )
        check(pictured.compare(sampler))
