"""Whole runs of simulators through the common loop: they finish, and a resumed one is the one that went straight on."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from simulator_runs import SMALL, overrides, recipe, summary

from rlinf.cluster import WorkerError

# Each takes longer than the others, which show the same parts of a checkpoint.
AT_NIGHT = (
    "ppo_faulty",
    "chunks",
    "images",
    "images_sac",
    "sac_memory",
    "td3",
    "ddpg",
    "sac_hindsight",
    "dqn_hindsight",
    "tqc",
    "sac_flow",
    "ppo_normalised",
    "discrete_sac",
    "dqn",
    "crossq",
    "sac_chunks",
    "chunked_episodes",
)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in AT_NIGHT)) for kind in sorted(SMALL)]
)
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
def test_every_level_of_positions_trains(tmp_path: Path, reward: int, logprob: int) -> None:
    levels = [f"algorithm.reward_type={LEVELS[reward]}", f"algorithm.logprob_type={LEVELS[logprob]}"]
    summary(tmp_path / "run", "chunks", 2, levels)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    last = lines[-1]
    # 2 environments, 16 decisions each, of which one stops after 2 of its 4 actions: the episode is over
    assert last["rollout/env_steps"] == 2 * (15 * 4 + 2)
    assert last["train/grad_norm"] > 0
    assert last["train/entropy"] == pytest.approx(1.4189, abs=0.1)
    assert last["train/ratio"] == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    ("kind", "policy"),
    [
        pytest.param("ppo", [], marks=pytest.mark.slow),
        pytest.param("sac", [], marks=pytest.mark.slow),
        pytest.param("ppo", ["policy.recurrent=gru", "policy.embedding_size=8"], marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_ends_with_the_weights_of_an_uninterrupted_one(
    tmp_path: Path, kind: str, policy: list[str]
) -> None:
    settings = ["checkpoint.every=3", *policy]
    straight = summary(tmp_path / "straight", kind, 40, settings)
    cut = tmp_path / "cut"
    command = [sys.executable, "-m", "rlinf.cli", "train", str(recipe(cut, kind)), *overrides(cut, 40)]
    command += settings
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if len(list((cut / "checkpoints").glob("step_*"))) >= 2:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.002)
    assert process.wait(timeout=60) == -signal.SIGKILL
    assert not (cut / "summary.json").exists()
    resumed = summary(cut, kind, 40, settings)
    assert resumed["params_sha256"] == straight["params_sha256"]
    assert resumed["metrics"]["eval/return"] == straight["metrics"]["eval/return"]


def test_a_step_whose_groups_are_all_filtered_out_is_survived(tmp_path: Path) -> None:
    bounds = ["algorithm.filter_rewards=true", "algorithm.rewards_lower_bound=1000000"]
    summary(tmp_path / "run", "grpo", 2, bounds)
    assert [line["step"] for line in output(tmp_path / "run")] == [0, 1, 2]


def faults(raising: int, hanging: int) -> list[str]:
    """One step in N raises, one in M hangs."""
    return [f"env.kwargs={{raise_every: {raising}, hang_every: {hanging}}}"]


def output(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_randomly_failing_environment_trains_to_the_end_with_everything_counted(tmp_path: Path) -> None:
    done = summary(tmp_path / "run", "ppo_faulty", 6, faults(60, 200))
    lines = output(tmp_path / "run")
    assert [line["step"] for line in lines] == list(range(7))
    last = lines[-1]
    assert last["env/failures"] > 5
    assert last["env/timeouts"] > 0
    assert last["env/nan"] == 0
    # Every position that was stepped arrived or was dropped with its broken episode; the counts never go down.
    positions = 4 * 64
    for before, after in itertools.pairwise(lines[1:]):
        assert after["rollout/env_steps_total"] - before["rollout/env_steps_total"] == after["rollout/env_steps"]
        assert 0 < after["rollout/env_steps"] <= positions
        assert after["env/failures"] >= before["env/failures"]
    assert done["metrics"]["eval/failures"] + done["metrics"].get("eval/return/n", 0) >= 4


def test_an_environment_that_always_breaks_is_reported_with_its_traceback(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"(?s)a simulated fault.*never made a single step: 5 steps failed"):
        summary(tmp_path / "run", "ppo_faulty", 2, ["env.kwargs={raise_every: 1}", "env.max_failures=100"])


@pytest.mark.slow
def test_a_run_whose_environment_fails_once_in_hundreds_of_steps_still_learns(tmp_path: Path) -> None:
    """1 step in 500 raises, 1 in 2000 hangs."""
    settings = [*faults(500, 2000), "env.num_envs=8", "rollout.num_steps=128", "policy.hidden_sizes=[64, 64]"]
    learner = ["learner.optimizer.lr=0.002", "learner.optimizer.grad_clip=0.5"]
    summary(tmp_path / "run", "ppo_faulty", 30, [*settings, *learner, "evaluation.size=0"])
    lines = output(tmp_path / "run")
    assert lines[-1]["step"] == 30
    steps = lines[-1]["rollout/env_steps_total"]
    assert steps > 29_000
    assert 0.5 < lines[-1]["env/failures"] / (steps / 500) < 1.5
    assert 0.2 < lines[-1]["env/timeouts"] / (steps / 2000) < 2.0
    first, last = lines[1]["rollout/return"], lines[-1]["rollout/return"]
    assert last > 3 * first
