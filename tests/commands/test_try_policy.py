"""`rlinf try`: prompt, response, answer, verdict and reward of a few tasks, before training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlinf.cli import WRONG_CONFIG, main

REWARD = "def loud(*, prompt, response, answer, row):\n    return 0.5\n"


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model with random weights on a dataset of sums, with a reward function next to it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "try_rewards.py").write_text(REWARD)
    rows = [{"question": f"What is \x1b[31m{number} + 1?", "answer": str(number + 1)} for number in range(20)]
    (tmp_path / "sums.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, **heads}
    sections: dict[str, Any] = {
        "run": {"max_steps": 1, "dir": str(tmp_path / "run")},
        "env": {
            "id": "rlinf_envs:rlinf/Math-v0",
            "kwargs": {"path": "sums.jsonl", "reward": {"correctness": 1, "custom": {"try_rewards:loud": 2.0}}},
        },
        "policy": {"architecture": {"model_type": "qwen2", **shape}, "tokenizer": {"vocab_size": 300}},
        "rollout": {"batch_size": 2, "max_new_tokens": 4, "sampler": "hf"},
        "algorithm": {"group_size": 2},
        "evaluation": {"size": 2},
    }
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(sections))
    return path


def test_every_response_comes_with_its_verdict_and_reward(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["try", str(recipe), "--tasks", "2", "--samples", "3", "--json"]) == 0
    first = capsys.readouterr().out
    graded = [json.loads(line) for line in first.splitlines()]
    assert [line["task"] for line in graded] == [0, 0, 0, 1, 1, 1]
    for line in graded:
        assert line["terms"] == {"correctness": float(line["verdict"] == "correct"), "custom:try_rewards:loud": 0.5}
        assert line["reward"] == line["terms"]["correctness"] + 1.0
        assert line["finish"] in ("length", "stop")
        assert line["verdict"] in ("correct", "wrong", "unparsable")
    # Words for the file may stand between options and after them.
    assert main(["try", str(recipe), "--tasks", "2", "run.seed=0", "--samples", "3", "--json", "run.max_steps=2"]) == 0
    assert capsys.readouterr().out == first, "the same seed samples the same"
    assert not (recipe.parent / "run").exists()


def test_a_person_reads_panels_without_control_characters(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["try", str(recipe), "--tasks", "1", "--split", "eval"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b[31m" not in shown
    assert "\\x1b[31m" in shown
    assert "(right: " in shown
    assert "before weights: correctness 0," in shown
    assert "0 of 1 correct, mean reward 1. 1 cut by the length limit" in shown


def test_what_training_refuses_is_refused(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["try", str(recipe), "env.kwargs.answer_format=bxed"]) == WRONG_CONFIG
    assert "did you mean 'boxed'" in capsys.readouterr().err
    assert main(["try", str(recipe), "--tasks", "0"]) == WRONG_CONFIG
    simulator = ["env.id=CartPole-v1", "env.kwargs=null", "policy.name=actor_critic", "policy.architecture=null"]
    assert main(["try", str(recipe), *simulator]) == WRONG_CONFIG
