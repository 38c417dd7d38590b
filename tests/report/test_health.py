"""Each check on runs where the answer is known."""

from pathlib import Path

import pytest
from report_runs import healthy, write_run

from rlinf.report.health import examine, risen
from rlinf.report.runs import read_run

STEPS = range(1, 21)


def levels(folder: Path) -> dict[str, str]:
    return {finding.title: finding.level for finding in examine(read_run(folder))}


def test_a_healthy_run_is_told_so(tmp_path: Path) -> None:
    found = levels(write_run(tmp_path / "run", [healthy(step) for step in STEPS]))
    assert set(found.values()) == {"ok"}
    assert {"Entropy", "Clip fraction", "Constant groups", "Sampler and learner", "Reward and accuracy"} <= set(found)


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({"train/entropy": lambda step: 1.0 * 0.7**step}, "Entropy collapse"),
        ({"train/clip_fraction_high": lambda step: 0.4}, "Clip fraction too high"),
        ({"reward/constant_groups": lambda step: 0.99}, "All groups constant"),
        ({"train/sampler_logprob_gap": lambda step: 0.3}, "Sampler and learner disagree"),
        (
            {"rollout/response_length": lambda step: 20.0 * step, "rollout/cut_by_length": lambda step: step / 20},
            "Length explosion",
        ),
        ({"rollout/accuracy": lambda step: 0.8 - 0.03 * step}, "Signs of reward hacking"),
        ({"train/explained_variance": lambda step: -0.5}, "Critic"),
    ],
)
def test_what_goes_wrong_is_named(tmp_path: Path, changes: dict, title: str) -> None:
    lines = [{**healthy(step), **{name: value(step) for name, value in changes.items()}} for step in STEPS]
    findings = examine(read_run(write_run(tmp_path / "run", lines)))
    assert (findings[0].title, findings[0].level) == (title, "bad")
    assert findings[0].words


def test_reward_without_accuracy_is_watched(tmp_path: Path) -> None:
    lines = [{**healthy(step), "rollout/accuracy": 0.4 + 0.01 * (step % 2)} for step in STEPS]
    assert levels(write_run(tmp_path / "run", lines))["Signs of reward hacking"] == "watch"


def test_noise_alone_is_no_trend() -> None:
    assert risen([0.5, 0.4, 0.6, 0.5, 0.4, 0.6, 0.5, 0.45, 0.6, 0.55]) == 0
    assert risen([place / 10 for place in range(10)]) == 1
    assert risen([-place / 10 for place in range(10)]) == -1


def test_a_gradient_that_was_no_number_is_bad(tmp_path: Path) -> None:
    lines = [{**healthy(step), "train/grad_norm": float("nan") if step == 9 else 1.0} for step in STEPS]
    assert levels(write_run(tmp_path / "run", lines))["Gradients"] == "bad"
