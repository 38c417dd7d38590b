"""`rlinf check --time`: what is measured, how it is counted, and what it assumes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_runs import config, mapping

from rlinf.cli import main
from rlinf.commands import timing
from rlinf.config import Config, load_mapping


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Runs that take known times: (steps, steps of the warm start) of each."""
    requested: list[tuple[int, int]] = []

    def lines(_config: Config, *, steps: int, warm_steps: int) -> tuple[list[dict[str, Any]], float]:
        requested.append((steps, warm_steps))
        made = [
            {"step": index - warm_steps, "time/sft_step_s": 9.0 if index == 0 else 0.1} for index in range(warm_steps)
        ]
        made.append({"step": 0, "time/evaluation_s": 3.0})
        for step in range(1, steps + 1):
            first = {"time/step_s": 60.0 if step == 1 else 4.0, "time/generation_s": 2.0, "time/update_s": 1.0}
            made.append({"step": step, "rollout/response_length": 2.0, **first})
        return made, 5.0

    monkeypatch.setattr(timing, "_measured", lines)
    return requested


def test_the_parts_add_up_and_the_assumption_has_its_upper_bound(
    tmp_path: Path, measured: list[tuple[int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    """40 steps of 4 s, 3 evaluations of 3 s, 30 of the warm start of 0.1 s, 5 s of other work; tokens may double."""
    sections = {"run": {"max_steps": 40}, "evaluation": {"size": 8, "every": 20}, "sft": {"steps": 30}}
    timing.time_run(config(tmp_path, **sections))
    output = capsys.readouterr().out
    assert measured == [(0, 10), (4, 30)]
    rows = {line.split("  ")[1]: line.split("  ")[-1].strip() for line in output.splitlines() if line.startswith("  ")}
    assert rows["start and end"] == "5 s"
    assert rows["warm start"] == "3 s"
    assert rows["steps"] == "2 min 40 s"
    assert rows["evaluations"] == "9 s"
    assert rows["in all"] == "2 min 57 s"
    assert "Responses stay as long as measured: 2 tokens of at most 4." in output
    assert "With the longest responses or episodes that are allowed: 4 min 57 s." in output


def test_a_long_warm_start_is_not_made_whole(
    tmp_path: Path, measured: list[tuple[int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    timing.time_run(config(tmp_path, sft={"steps": 1000}))
    assert measured == [(0, 10), (4, 10)]
    assert "measured after 10 of 1000 steps of the warm start" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("every", "size", "steps", "count"), [(20, 8, 40, 3), (30, 8, 40, 3), (0, 8, 40, 2), (5, 0, 9, 0)]
)
def test_how_often_a_run_evaluates(tmp_path: Path, every: int, size: int, steps: int, count: int) -> None:
    made = config(tmp_path, run={"max_steps": steps})
    changed = replace(made, evaluation=replace(made.evaluation, every=every, size=size))
    assert timing._evaluations(changed) == count
    spared = replace(changed, evaluation=replace(changed.evaluation, at_start=False))
    assert timing._evaluations(spared) == max(0, count - 1)


def test_off_policy_learners_are_measured_when_they_learn(tmp_path: Path) -> None:
    sections = {
        "run": {"name": "sac", "dir": str(tmp_path), "max_steps": 100},
        "env": {"id": "Pendulum-v1", "num_envs": 2},
        "policy": {"name": "actor_critic"},
        "rollout": {"num_steps": 10},
        "algorithm": {"loss_type": "sac", "replay_start": 100},
    }
    sac = load_mapping(sections, source="test")
    assert timing._steps(sac) == 9
    # Five steps only collect; the next one also makes the optimiser's state, and is left out.
    lines = [{"time/step_s": seconds} for seconds in (0.1, 0.1, 0.1, 0.1, 0.1, 5.0, 1.0, 1.0, 1.0)]
    filling, steps, *_ = timing._of_training(sac, lines, [])
    assert (filling.name, filling.count, filling.each_s) == ("filling", 5, 0.1)
    assert (steps.name, steps.count, steps.each_s) == ("steps", 95, 1.0)


def test_whole_episodes_are_assumed_to_stay_as_long(tmp_path: Path) -> None:
    sections = {
        "run": {"name": "grpo", "dir": str(tmp_path), "max_steps": 100},
        "env": {"id": "CartPole-v1", "num_envs": 8},
        "policy": {"name": "actor_critic"},
        "rollout": {"batch_size": 4},
        "algorithm": {"adv_type": "grpo", "group_size": 4},
    }
    assumed: list[str] = []
    lines = [{"time/step_s": 1.0, "time/rollout_s": 0.5, "time/update_s": 0.4, "rollout/episode_len": 20.0}]
    steps, *_ = timing._of_training(load_mapping(sections, source="test"), lines, assumed)
    assert steps.most_s == pytest.approx(0.1 + 0.9 * 25)  # CartPole-v1 ends episodes after 500 steps
    assert "Episodes of training stay as long as measured: 20 steps." in assumed


@pytest.mark.parametrize("kind", ["text", "simulator"])
def test_a_run_is_measured_and_leaves_nothing_behind(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    given = mapping(folder, run={"max_steps": 5})
    if kind == "simulator":
        given = {
            "run": {"name": "cart", "dir": str(folder), "max_steps": 5},
            "env": {"id": "CartPole-v1", "num_envs": 2},
            "policy": {"name": "actor_critic"},
            "rollout": {"num_steps": 8},
            "algorithm": {"adv_type": "gae", "loss_type": "actor_critic"},
            "cluster": {"backend": "local"},
            "evaluation": {"size": 2, "num_envs": 2},
        }
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(given))
    before = sorted(Path().iterdir())
    assert main(["check", str(file), "--time", "--no-build"]) == 0
    output = capsys.readouterr().out
    assert "5 x " in output
    assert ("warm start" in output.partition("Time on this machine")[2]) == (kind == "text")
    assert not folder.exists()
    assert sorted(Path().iterdir()) == before
