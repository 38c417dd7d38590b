"""Runs on ordinary environments of several turns: with a tool, and without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny_runs

PRICES = {
    "id": "rlinf_envs:rlinf/PriceList-v0",
    "kwargs": {"things": 2, "prices": 5},
    "max_turns": 3,
    "num_tasks": 20,
}
SHORT = {"steps": 80, "batch_size": 16, "lr": 1e-2}
"""A warm start."""


def test_a_tool_answers_and_its_words_are_not_trained_on(tmp_path: Path) -> None:
    sections = tiny_runs.mapping(
        tmp_path,
        env=PRICES,
        run={"max_steps": 1},
        sft=SHORT,
        rollout={"max_new_tokens": 20},
        logging={"samples_every": 1},
    )
    sections["policy"]["tokenizer"] = {"vocab_size": 400}  # a call is then a few tokens
    sections["evaluation"] = {"size": 8, "every": 0}
    tiny_runs.run(tiny_runs.load_mapping(sections, source="test"))
    samples = [
        json.loads(line) for file in sorted(tmp_path.rglob("samples/*.jsonl")) for line in file.read_text().splitlines()
    ]
    turns = [turn for sample in samples for turn in sample.get("turns", [])]
    called = [turn for turn in turns if turn["speaker"] == "policy" and '"price"' in turn["text"]]
    answered = [turn for turn in turns if turn["speaker"] == "environment"]
    assert called, "the warm start shows the call"
    assert answered
    (line,) = tiny_runs.logged(tmp_path)[-1:]
    assert line["rollout/tokens"] > 0


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_the_policy_learns_what_the_environment_writes(tmp_path: Path) -> None:
    """The answers of a fixed price list, which the warm start never imitates: their cross-entropy falls."""

    def losses(coef: float) -> list[float]:
        folder = tmp_path / f"coef_{coef:g}"
        sections = tiny_runs.mapping(
            folder,
            env=PRICES,
            run={"max_steps": 12},
            sft=SHORT,
            rollout={"batch_size": 8, "max_new_tokens": 20},
            algorithm={"environment_coef": coef},
            learner={"optimizer": {"lr": 3e-3}, "num_workers": 2},
            cluster={"backend": "ray"},
            checkpoint={"every": 0},
        )
        sections["policy"]["tokenizer"] = {"vocab_size": 400}
        sections["evaluation"] = {"size": 0, "every": 0}
        tiny_runs.run(tiny_runs.load_mapping(sections, source="test"))
        lines = tiny_runs.logged(folder)
        return [line["train/environment_loss"] for line in lines if "train/environment_loss" in line]

    found = losses(1.0)
    assert len(found) == 12
    assert sum(found[-3:]) < 0.5 * sum(found[:3]), found
    assert losses(0.0) == []
