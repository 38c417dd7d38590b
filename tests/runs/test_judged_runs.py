"""A run whose judge fails now and then goes on, without the rows that nobody could grade."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny_runs
from grading_services import Service, completion, serving


@pytest.mark.filterwarnings("ignore:reward.judge")
def test_one_failure_in_five_masks_rows_and_stops_nothing(tmp_path: Path) -> None:
    rows = [{"prompt": f"write {number}", "response": f"{number}"} for number in range(40)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lengths = Service(
        lambda asked: completion(f"Score: {len(asked['messages'][0]['content']) % 7}"),
        lambda number: "500" if number % 5 == 4 else "",
    )
    with serving(lengths):
        judge = {"weight": 1.0, "base_url": f"{lengths.url}/v1", "model": "m", "rubric": "r", "retries": 0}
        env = {
            "id": "rlinf_envs:rlinf/Prompts-v0",
            "kwargs": {"path": str(tmp_path / "rows.jsonl"), "response_field": "response", "reward": {"judge": judge}},
        }
        sections = tiny_runs.mapping(tmp_path / "run", env=env, run={"max_steps": 2}, evaluation={"size": 0})
        sections["evaluation"] = {"size": 0}
        tiny_runs.run(tiny_runs.load_mapping(sections, source="test"))
    logged = [line for line in tiny_runs.logged(tmp_path / "run") if "rollout/masked" in line]
    assert len(logged) == 2
    failures = sum(line.get("reward_failures/judge", 0.0) for line in logged)
    assert failures == sum(number % 5 == 4 for number in range(len(lengths.requests)))
    assert 0 < sum(line["rollout/masked"] for line in logged) / 2 < 0.5
