"""Hindsight replay: every key that does not go with it is reported at once, with what to write."""

from __future__ import annotations

from typing import Any

import pytest

from rlinf.config import ConfigErrors, load_mapping


def goals(**changes: object) -> dict[str, dict[str, object]]:
    sections: dict[str, dict[str, object]] = {
        "env": {"id": "rlinf_envs:rlinf/SparseReach-v0", "kwargs": {"goals": True}},
        "policy": {"name": "actor_critic"},
        "algorithm": {"loss_type": "sac", "hindsight": "future"},
    }
    for key, value in changes.items():
        section, _, name = key.partition(".")
        sections[section][name] = value
    return sections


def test_all_that_does_not_go_with_it_is_reported_together() -> None:
    wrong: dict[str, Any] = {
        "algorithm.n_step": 3,
        "algorithm.priority_exponent": 0.6,
        "env.num_action_chunks": 4,
        "env.normalize_rewards": True,
        "env.frame_stack": 2,
        "env.tasks": [{"name": "a"}, {"name": "b"}],
        "env.wrappers": ["FlattenObservation"],
    }
    load_mapping(goals(), source="test")
    with pytest.raises(ConfigErrors) as caught:
        load_mapping(goals(**wrong), source="test")
    assert {problem.key for problem in caught.value.problems} == set(wrong)
    assert all("algorithm.hindsight: future" in str(problem) for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("algorithm.hindsight", "futures", "future"),
        ("algorithm.hindsight_goals", 0, "at least 1"),
        ("policy.recurrent", "gru", "have no other goals"),
    ],
)
def test_a_wrong_value_is_named(key: str, value: object, message: str) -> None:
    with pytest.raises(ConfigErrors, match=message):
        load_mapping(goals(**{key: value}), source="test")


def test_goals_without_hindsight_have_no_reader() -> None:
    with pytest.raises(ConfigErrors, match=r"hindsight_goals is not read without algorithm.hindsight"):
        load_mapping(goals(**{"algorithm.hindsight": "none", "algorithm.hindsight_goals": 8}), source="test")
    with pytest.raises(ConfigErrors, match=r"hindsight is not read by adv_type"):
        load_mapping(goals(**{"algorithm.loss_type": "actor_critic", "algorithm.adv_type": "gae"}), source="test")
