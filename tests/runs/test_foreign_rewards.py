"""Rewards that were written for TRL and verl train a policy, from a YAML file to the metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tiny_runs import mapping

from rlinf.cli import main

FUNCTIONS = """
def trl_reward(completions, level, **kwargs):
    return [level[0] * len(completion[0]["content"]) for completion in completions]


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": float(data_source == "sums" and ground_truth == str(extra_info["truth"])), "acc": 0}
"""


def test_rewards_of_trl_and_verl_run_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("foreign_rewards.py").write_text(FUNCTIONS)
    rows = [
        {
            "prompt": [{"role": "user", "content": f"{i} + 1?"}],
            "data_source": "sums",
            "reward_model": {"ground_truth": str(i + 1)},
            "extra_info": {"truth": i + 1},
            "level": 3,
        }
        for i in range(24)
    ]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    custom = {"foreign_rewards:trl_reward": 1.0, "foreign_rewards:compute_score": 0.5}
    wanted = mapping(tmp_path / "run", run={"max_steps": 1}, sft={"steps": 0})
    wanted["env"] = {
        "id": "rlinf_envs:rlinf/Math-v0",
        "kwargs": {"path": "rows.jsonl", "reward": {"custom": custom}},
    }
    wanted["evaluation"] = {"size": 0}
    Path("run.yaml").write_text(yaml.safe_dump(wanted))
    assert main(["train", "run.yaml"]) == 0, capsys.readouterr().err
    last = json.loads(Path("run/metrics.jsonl").read_text().splitlines()[-1])
    assert last["reward_terms/custom:foreign_rewards:compute_score"] == 1.0
    assert last["reward_terms/custom:foreign_rewards:trl_reward"] > 3.0  # three for each character
    assert last["reward/mean"] == pytest.approx(0.5 + last["reward_terms/custom:foreign_rewards:trl_reward"])
