"""Whole runs of simulators through the common loop: they finish, and a resumed one is the one that went straight on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from simulator_runs import SMALL, overrides, recipe, summary


@pytest.mark.parametrize("kind", sorted(SMALL))
def test_a_resumed_run_ends_with_the_same_weights(tmp_path: Path, kind: str) -> None:
    straight = summary(tmp_path / "straight", kind, 4)
    summary(tmp_path / "resumed", kind, 2)
    resumed = summary(tmp_path / "resumed", kind, 4)
    assert straight["params_sha256"] == resumed["params_sha256"]
    assert straight["metrics"]["eval/return"] == resumed["metrics"]["eval/return"]
    assert straight["initial_metrics"]["eval/return/n"] == 4
    lines = [json.loads(line) for line in (tmp_path / "resumed" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4]
    assert lines[-1]["failures/env_workers"] == lines[-1]["env/failures"] == 0


LEVELS = ("chunk_level", "action_level", "token_level")


@pytest.mark.parametrize(("reward", "logprob"), [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2)])
def test_every_level_of_slots_trains(tmp_path: Path, reward: int, logprob: int) -> None:
    levels = [f"algorithm.reward_type={LEVELS[reward]}", f"algorithm.logprob_type={LEVELS[logprob]}"]
    summary(tmp_path / "run", "chunks", 2, levels)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    last = lines[-1]
    # 2 environments, 16 decisions each, of which one stops after 2 of its 4 actions: the episode is over
    assert last["rollout/env_steps"] == 2 * (15 * 4 + 2)
    assert last["train/grad_norm"] > 0
    assert last["train/entropy"] == pytest.approx(1.4189, abs=0.1)
    assert last["train/ratio"] == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("kind", ["ppo", "sac"])
def test_a_killed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path: Path, kind: str) -> None:
    straight = summary(tmp_path / "straight", kind, 40, ["checkpoint.every=3"])
    cut = tmp_path / "cut"
    command = [sys.executable, "-m", "rlinf.cli", "train", str(recipe(cut, kind)), *overrides(cut, 40)]
    command.append("checkpoint.every=3")
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if len(list((cut / "checkpoints").glob("step_*"))) >= 2:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.002)
    assert process.wait(timeout=60) == -signal.SIGKILL
    assert not (cut / "summary.json").exists()
    resumed = summary(cut, kind, 40, ["checkpoint.every=3"])
    assert resumed["params_sha256"] == straight["params_sha256"]
    assert resumed["metrics"]["eval/return"] == straight["metrics"]["eval/return"]
