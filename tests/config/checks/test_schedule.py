"""Options of an optimiser, and schedules, without a reader are reported at once."""

from __future__ import annotations

from typing import Any

import pytest

from rlinf.config import ConfigErrors, load_mapping

A2C: dict[str, dict[str, Any]] = {
    "env": {"id": "CartPole-v1"},
    "policy": {"name": "actor_critic"},
    "algorithm": {"adv_type": "gae", "loss_type": "actor_critic", "clip_schedule": "linear"},
    "learner": {"optimizer": {"name": "rmsprop", "smoothing": 0.95}},
}


def test_an_optimiser_has_its_own_options() -> None:
    assert load_mapping(A2C, source="test").learner.optimizer.smoothing == 0.95
    keys = {"betas": [0.0, 0.9], "weight_decay": 0.1, "smoothing": 1.0}
    wrong = {
        "algorithm": {**A2C["algorithm"], "value_clip_schedule": "linear"},
        "learner": {"backend": "fsdp", "optimizer": {"name": "rmsprop_tf", **keys}},
    }
    with pytest.raises(ConfigErrors) as caught:
        load_mapping({**A2C, **wrong}, source="test")
    found = {problem.key for problem in caught.value.problems}
    optimizer = {f"learner.optimizer.{key}" for key in (*keys, "name")}
    assert optimizer | {"algorithm.value_clip_schedule", "learner.backend"} == found


@pytest.mark.parametrize(
    ("section", "keys", "message"),
    [
        ("learner", {"optimizer": {"name": "rmsprob"}}, "rmsprop"),
        ("learner", {"optimizer": {"smoothing": 0.9}}, "Add name: rmsprop"),
        ("algorithm", {"loss_type": "sac", "clip_schedule": "linear"}, "clip_schedule"),
        ("algorithm", {"loss_type": "reinforce", "clip_schedule": "linear"}, "is read by loss_type: actor,"),
    ],
)
def test_what_is_not_read_is_named(section: str, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigErrors, match=message):
        load_mapping({**A2C, section: keys}, source="test")
