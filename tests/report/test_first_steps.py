"""Warnings after the first training iterations: from numbers, on the terminal, and on the health page."""

from __future__ import annotations

from typing import Any

import pytest

from rlinf.report.first_steps import FIRST_STEPS, FirstSteps, early_warnings

CONFIG: dict[str, Any] = {
    "run": {"max_steps": 100},
    "env": {"max_turns": 1, "kwargs": {"answer_format": "boxed", "reward": {"custom": {"mine:brevity": 1.0}}}},
    "policy": {"name": "causal_lm"},
    "rollout": {"batch_size": 4, "max_new_tokens": 24},
    "algorithm": {"group_size": 4},
}
ALIVE = {
    "algorithm/reward_mean": 0.1,
    "algorithm/reward_std": 0.3,
    "algorithm/advantage_abs_mean": 0.2,
    "algorithm/constant_group_fraction": 0.5,
    "rollout/cut_by_length": 0.2,
    "verdict/unparsable": 0.5,
    "verdict/quarantined": 0.0,
}
NOTHING = {"algorithm/reward_mean": 0.0, "algorithm/reward_std": 0.0, "algorithm/advantage_abs_mean": 0.0}
CASES: list[tuple[dict[str, float], str, str]] = [
    (NOTHING, "No reward was earned", "warm start"),
    (
        {"algorithm/advantage_abs_mean": 0.0, "algorithm/constant_group_fraction": 1.0},
        "Every advantage was 0",
        "(algorithm.group_size, now 4)",
    ),
    ({"algorithm/advantage_abs_mean": 0.0}, "Every advantage was 0", "Check filters"),
    ({**NOTHING, "rollout/accuracy": 0.45}, "No reward was earned", "45% of the answers are right"),
    ({**NOTHING, "rollout/accuracy": 0.45}, "No reward was earned", "(now custom: mine:brevity)"),
    (
        {"algorithm/advantage_abs_mean": 0.0, "algorithm/reward_std": 0.0, "rollout/accuracy": 0.3},
        "Every advantage was 0",
        "env.kwargs.reward: {correctness: 1.0}",
    ),
    ({**NOTHING, "rollout/accuracy": 0.0}, "No reward was earned", "easier tasks"),
    ({**NOTHING, "verdict/unparsable": 1.0}, "No answer could be read", "(boxed)"),
    ({"verdict/unparsable": 1.0}, "No answer could be read", "data.system_prompt"),
    ({"rollout/cut_by_length": 1.0}, "Every response was cut by the length limit", "(now 24)"),
    ({**NOTHING, "verdict/quarantined": 16.0}, "Every reward was NaN or infinite", "mine:brevity"),
]


@pytest.mark.parametrize(("changed", "title", "fix"), CASES, ids=[title for _, title, _ in CASES])
def test_what_all_first_steps_have_in_common_is_reported_with_a_fix(
    changed: dict[str, float], title: str, fix: str
) -> None:
    (found,) = early_warnings([{**ALIVE, **changed}] * 3, CONFIG)
    assert found.title.startswith(title)
    assert "in the first 3 training iterations" in found.title
    assert fix in found.words


@pytest.mark.parametrize("changed", [changed for changed, _, _ in CASES])
def test_one_step_that_is_alive_is_enough(changed: dict[str, float]) -> None:
    dead = {**ALIVE, **changed}
    assert early_warnings([dead, ALIVE, dead], CONFIG) == []
    assert early_warnings([], CONFIG) == []


def test_numbers_that_a_run_does_not_log_cause_no_warning() -> None:
    assert early_warnings([{"rollout/return": 0.0, "rollout/episodes": 0.0}] * 3, CONFIG) == []


def test_two_causes_are_both_reported() -> None:
    dead = {**ALIVE, **NOTHING, "rollout/cut_by_length": 1.0, "verdict/unparsable": 1.0}
    assert len(early_warnings([dead] * 3, CONFIG)) == 2


def test_conversations_are_called_so() -> None:
    turns = {**CONFIG, "env": {"max_turns": 3}}
    (found,) = early_warnings([{**ALIVE, "rollout/cut_by_length": 1.0}], turns)
    assert found.title == "Every conversation was cut by the length limit in the first training iteration"


def test_simulators_get_words_of_their_own() -> None:
    (found,) = early_warnings([NOTHING] * 3, {"policy": {"name": "actor_critic"}})
    assert "rollout.num_steps" in found.words


def test_each_is_reported_once_with_the_last_of_the_first_steps() -> None:
    first = FirstSteps(CONFIG)
    counts = [len(first.add(step, {**ALIVE, **NOTHING})) for step in range(8)]
    assert counts == [0] * FIRST_STEPS + [1] + [0] * (7 - FIRST_STEPS)


def test_a_short_run_is_judged_by_its_last_step() -> None:
    first = FirstSteps({**CONFIG, "run": {"max_steps": 1}})
    (found,) = first.add(1, {**ALIVE, **NOTHING})
    assert "in the first training iteration" in found.title


def test_a_resumed_run_remembers_the_steps_before() -> None:
    dead = {**ALIVE, **NOTHING}
    earlier = [{"step": 0.0, **ALIVE}, {"step": 1.0, **dead}, {"step": 2.0, **dead}]
    assert len(FirstSteps(CONFIG, earlier).add(3, dead)) == 1
    assert FirstSteps(CONFIG, [*earlier[:2], {"step": 2.0, **ALIVE}]).add(3, dead) == []
    assert FirstSteps(CONFIG, [*earlier, {"step": 3.0, **dead}]).add(4, dead) == []


def test_a_policy_that_its_first_updates_destroy_is_named_at_once() -> None:
    alive = {**ALIVE, "rollout/accuracy": 0.49, "train/update_ratio": 0.3}
    lost = {**ALIVE, **NOTHING, "rollout/accuracy": 0.0, "rollout/cut_by_length": 1.0, "train/update_ratio": 0.2}
    first = FirstSteps({**CONFIG, "learner": {"optimizer": {"lr": 0.01}}})
    assert not first.add(1, alive)
    assert not first.add(2, lost)
    (found,) = first.add(3, lost)
    assert found.title == "Learning rate too high"
    assert "one optimiser step moved the weights by 30% of their size" in found.words
    assert "try a tenth of learner.optimizer.lr (now 0.01)" in found.words
