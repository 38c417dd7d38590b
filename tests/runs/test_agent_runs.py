"""Agents and tools with latencies, from a configuration to metrics, samples and a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import text_envs
from tiny_runs import mapping

import rlinf.train
from rlinf.base.json_files import read_json_lines
from rlinf.config import load_mapping

AGENT = {"id": "agent:agents_for_tests:fork", "kwargs": {"tasks": "agents_for_tests:tasks"}, "max_turns": 8}
LENGTHS = {"batch_size": 2, "max_new_tokens": 6, "max_conversation_tokens": 120}


def run(folder: Path, **sections: Any) -> Any:
    given = {
        "run": {"max_steps": 2, "name": "agents", "dir": str(folder)},
        "logging": {"progress": "none", "tensorboard": False, "samples_every": 1},
        "rollout": {"sampler": "hf", **LENGTHS},
        "algorithm": {"group_size": 2},
        "evaluation": {"size": 2, "env_kwargs": None},
    }
    return rlinf.train.run(load_mapping(mapping(folder, **{**given, **sections})))


def test_an_agent_trains_from_a_configuration(tmp_path: Path) -> None:
    result = run(tmp_path / "run", env=AGENT)
    rows = read_json_lines(result.run_dir / "metrics.jsonl", number="step").rows
    trained = rows[-1]
    assert (trained["rollout/branches_per_episode"], trained["rollout/calls_per_episode"]) == (3.0, 4.0)
    # What the learner computes again before its update is what the endpoint reported.
    assert trained["train/sampler_logprob_gap_max"] < 1e-4
    assert "eval/reward" in result.metrics
    lines = (result.run_dir / "samples" / "step_000002.jsonl").read_text().splitlines()
    samples = [json.loads(line) for line in lines]
    assert sorted((sample["group"], sample["episode"], sample["branch"]) for sample in samples) == [
        (group, episode, branch) for group in (0, 1) for episode in (0, 1) for branch in (0, 1, 2)
    ]
    spoken = [turn for sample in samples for turn in sample["turns"] if turn["speaker"] == "policy"]
    assert all(turn["seconds"] > 0 and turn["versions"] == [1] for turn in spoken)
    assert "the conversation so far" in (result.run_dir / "report.html").read_text()


def test_unknown_tokens_of_an_agent_without_demonstrations_end_no_run(tmp_path: Path) -> None:
    """The tokenizer is trained on prompts alone, and ids that the policy has no token for are bad requests."""
    kwargs = {"tasks": "agents_for_tests:unanswered", "options": {"vocabulary": 300}}
    env = {"id": "agent:agents_for_tests:guesses", "kwargs": kwargs, "max_turns": 20}
    policy = {"tokenizer": {"vocab_size": 300}}
    text = {"data": {"max_prompt_length": 64}, "sft": {"steps": 0}, "policy": policy}
    result = run(tmp_path / "run", env=env, run={"max_steps": 1, "dir": str(tmp_path / "run")}, **text)
    assert result.metrics["eval/reward"] == 1.0


@pytest.mark.slow
def test_free_conversations_are_the_same_on_ray(tmp_path: Path) -> None:
    """Two samplers and two env workers in processes of their own, with other latencies, against one process."""
    kwargs = {**text_envs.lines(tmp_path), "max_turns": 3}
    text = {"data": {"max_prompt_length": 64}, "sft": {"steps": 0}, "policy": {"tokenizer": {"vocab_size": 300}}}
    env = {"id": text_envs.SLOW_TOOLS, "kwargs": kwargs, "max_turns": 3}
    first = run(tmp_path / "local", env=env, **text)
    elsewhere = {**env, "kwargs": {**kwargs, "latency": 1, "most_s": 0.1}, "num_workers": 2}
    rollout = {"sampler": "hf", **LENGTHS, "num_samplers": 2}
    second = run(tmp_path / "ray", env=elsewhere, rollout=rollout, cluster={"backend": "ray"}, **text)

    def numbers(folder: Path) -> list[dict[str, Any]]:
        names = ("time/", "speed/", "weights/", "wall")
        rows = read_json_lines(folder / "metrics.jsonl", number="step").rows
        return [{name: value for name, value in row.items() if not name.startswith(names)} for row in rows]

    assert numbers(second.run_dir) == numbers(first.run_dir)
