"""Agents: what can't be learned from their episodes is refused before anything starts."""

from __future__ import annotations

from typing import Any

import pytest
from tiny_runs import mapping

from rlinf.config import ConfigErrors, load_mapping

AGENT = {"id": "agent:agents_for_tests:talk", "kwargs": {"tasks": "agents_for_tests:tasks"}, "max_turns": 4}


def load_agent(tmp_path: Any, **sections: Any) -> None:
    load_mapping(mapping(tmp_path, **{"env": AGENT, "evaluation": {"env_kwargs": None}, **sections}))


def test_an_agent_is_accepted(tmp_path: Any) -> None:
    load_agent(tmp_path)


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"env": {**AGENT, "id": "agent:agents_for_tests"}}, "names no function"),
        ({"env": {**AGENT, "kwargs": {}}}, r"env\.kwargs\.tasks is missing"),
        ({"algorithm": {"adv_type": "gigpo", "group_size": 4}}, "branches of an agent's episode share one reward"),
        ({"env": {**AGENT, "max_turns": 1}, "rollout": {"over_sampling": 0.5}}, "can't be continued"),
    ],
)
def test_what_agents_cannot_do_is_named(tmp_path: Any, sections: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigErrors, match=words):
        load_agent(tmp_path, **sections)
