"""Runs from YAML through Ray with real vLLM engines: log-probabilities in every step, and an engine that is killed."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_runs import GRADED_BY_LENGTH, config, logged, mapping
from tiny_runs import run as train

from rlinf.base.errors import OtherPolicy
from rlinf.data.messages import Metrics, WeightUpdate

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]
ROOT = Path(__file__).resolve().parents[2]
STEPS = 10
ARCHITECTURE = {
    "model_type": "qwen2",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}


def start(folder: Path, mark: str) -> subprocess.Popen[str]:
    """`rlinf train` of a tiny run through Ray; its workers carry ``mark`` in their environment."""
    given = mapping(
        folder,
        run={"max_steps": STEPS},
        env={"kwargs": GRADED_BY_LENGTH},
        policy={"architecture": ARCHITECTURE},
        rollout={"sampler": "vllm", "batch_size": 8, "max_new_tokens": 48, "vllm": {"kv_cache_memory_mb": 16}},
        evaluation={"size": 0, "env_kwargs": None},
        checkpoint={"every": 0},
        cluster={"backend": "ray", "env": {"RLINF_TEST_MARK": mark}},
    )
    file = folder.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(given))
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'envs'}"}
    command = [sys.executable, "-m", "rlinf.cli", "train", str(file)]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def steps_of(folder: Path) -> list[dict[str, Any]]:
    """The finished steps so far."""
    file = folder / "metrics.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return [row for row in map(json.loads, lines) if "time/step_s" in row]


def engine_pid(mark: str) -> int:
    """The process of this run that has vLLM's kernels loaded."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment, maps = (folder / "environ").read_bytes(), (folder / "maps").read_text()
        except OSError:
            continue
        if f"RLINF_TEST_MARK={mark}".encode() in environment and "/vllm/" in maps:
            return int(folder.name)
    raise AssertionError("no process of this run has an engine")


def run(folder: Path, *, kill_after: int | None = None) -> tuple[list[dict[str, Any]], str]:
    """All steps and the output; the engine is killed once ``kill_after`` steps are finished."""
    mark = uuid.uuid4().hex
    process = start(folder, mark)
    if kill_after is not None:
        give_up = time.monotonic() + 300
        while len(steps_of(folder)) < kill_after:
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < give_up
            time.sleep(0.02)
        os.kill(engine_pid(mark), signal.SIGKILL)
    output = process.communicate(timeout=600)[0]
    assert process.returncode == 0, output
    return steps_of(folder), output


def test_ten_updates_in_a_row_and_a_killed_engine(tmp_path: Path) -> None:
    whole, _ = run(tmp_path / "whole")
    killed, output = run(tmp_path / "killed", kill_after=3)
    for steps in (whole, killed):
        assert [row["step"] for row in steps] == list(range(1, STEPS + 1))
        assert max(row["train/sampler_logprob_gap_max"] for row in steps) < 1e-4
        assert {row["rollout/staleness"] for row in steps} == {0.0}
        assert min(row["train/grad_norm"] for row in steps) > 0.0
    assert "sampler rank 0 is restarted" in output
    assert killed[-1]["failures/samplers"] == 1.0
    assert whole[-1]["failures/samplers"] == 0.0
    # What was redone stands in a smaller batch, so it is equal but for rounding.
    for one, other in zip(whole, killed, strict=True):
        assert one["rollout/tokens"] == other["rollout/tokens"]
        assert one["reward/mean"] == pytest.approx(other["reward/mean"])
        assert one["train/loss"] == pytest.approx(other["train/loss"], abs=1e-3)


@pytest.mark.parametrize("faulty", [False, True])
def test_an_engine_that_cannot_be_read_is_probed_by_its_answers(
    faulty: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its third update on the faulty engine takes the version alone."""
    from rlinf.samplers.vllm import VllmSampler

    load = VllmSampler.load

    def version_alone(sampler: VllmSampler, update: WeightUpdate) -> Metrics:
        if update.version <= 2:
            return load(sampler, update)
        sampler._engine.set_weight_version(str(update.version))
        return {}

    monkeypatch.delattr(VllmSampler, "held_digests")
    if faulty:
        monkeypatch.setattr(VllmSampler, "load", version_alone)
    sections = {
        "env": {"kwargs": GRADED_BY_LENGTH},
        "sft": {"steps": 0},
        "policy": {"architecture": ARCHITECTURE},
        "rollout": {"sampler": "vllm", "batch_size": 8, "max_new_tokens": 16, "vllm": {"kv_cache_memory_mb": 16}},
    }
    wanted = config(tmp_path, **sections)
    if faulty:
        with pytest.raises(OtherPolicy, match=r"weights 3 were sent.*\n.*the sampler's show 0% of that"):
            train(wanted)
    else:
        train(wanted)
    lines = [line for line in logged(tmp_path) if "weights/answer_gap" in line]
    assert [line["step"] for line in lines] == ([1, 2] if faulty else [1, 2, 3, 4])
    assert max(line["weights/answer_gap"] for line in lines) < 1e-4
    assert min(line["weights/answer_change"] for line in lines) > 0.99
