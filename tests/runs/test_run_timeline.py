"""Timelines of real runs: what takes long is found by its name, and nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_runs

from rlinf.report.timeline import timelines


def summary_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return content


def calling(folder: Path) -> str:
    """The path of sums whose solutions call a tool."""
    rows = [
        {
            "question": f"What is {a} plus {b}?",
            "answer": str(a + b),
            "solution": f'<tool_call>{{"name": "slow_sum", "arguments": {{"a": {a}, "b": {b}}}}}</tool_call>',
        }
        for a in range(5)
        for b in range(5)
    ]
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_a_slow_tool_and_a_slow_reward_are_found_by_name(tmp_path: Path) -> None:
    made = tiny_runs.mapping(
        tmp_path / "run",
        run={"max_steps": 1},
        cluster={"backend": "ray"},
        data={"max_prompt_length": 512},
        sft={"steps": 120, "batch_size": 16, "lr": 1e-2},
        rollout={"batch_size": 2, "max_new_tokens": 40},
        algorithm={"group_size": 2},
        logging={"trace_every": 1},
        checkpoint={"every": 0},
        evaluation={"size": 0},
    )
    made["env"] = {
        "id": "rlinf_envs:rlinf/Math-v0",
        "max_turns": 2,
        "kwargs": {
            "path": calling(tmp_path),
            "eval_fraction": 0.2,
            "tools": ["slow_parts:slow_sum"],
            "reward": {"correctness": 1.0, "custom": {"slow_parts:slow_reward": 0.1}},
        },
    }
    made["evaluation"] = {"size": 0}
    made["policy"]["tokenizer"] = {"vocab_size": 400}
    tiny_runs.run(tiny_runs.load_mapping(made, source="test"))
    (line,), notes = timelines(tmp_path / "run")
    longest = {row["name"]: row for row in line["longest"]}
    assert notes == []
    assert longest["tool slow_sum"]["longest_s"] >= 0.3
    assert longest["reward custom:slow_parts:slow_reward"]["longest_s"] >= 0.2
    assert longest["tool slow_sum"]["longest"].startswith("env 0")
    assert {"collect", "update", "weights to samplers", "forward", "backward", "generation", "environment"} <= {
        *longest
    }
    assert {process["name"] for process in line["processes"]} == {
        "driver",
        "conversations",
        "env 0",
        "sampler 0",
        "learner 0",
    }


def test_a_timeline_changes_no_number(tmp_path: Path) -> None:
    for name, every in (("with", 1), ("without", 0)):
        tiny_runs.run(tiny_runs.config(tmp_path / name, run={"max_steps": 3}, logging={"trace_every": every}))
    assert summary_of(tmp_path / "with")["params_sha256"] == summary_of(tmp_path / "without")["params_sha256"]
    assert sorted(path.name for path in (tmp_path / "with/timeline").iterdir()) == [
        f"step_{step:06d}.json" for step in (1, 2, 3)
    ]
    assert not (tmp_path / "without/timeline").exists()


def test_a_simulator_has_a_timeline_too(tmp_path: Path) -> None:
    from rlinf.config import load
    from rlinf.train import run

    small = ["run.max_steps=1", "env.num_envs=2", "rollout.num_steps=16", "evaluation.size=0", "checkpoint.every=0"]
    settings = [*small, f"run.dir={tmp_path}", "cluster.backend=local", "logging.trace_every=1"]
    run(load("cartpole_ppo", settings), report=False)
    (line,), _ = timelines(tmp_path)
    assert {"collect", "update", "forward", "optimiser step"} <= {row["name"] for row in line["longest"]}
