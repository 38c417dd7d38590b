"""Function-calling tasks of several turns over a stand-in of the package bfcl-eval with one service."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rlinf_envs.errors import DatasetError, SettingError
from rlinf_envs.function_calls.services import MODULES
from rlinf_envs.function_calls.services_env import FunctionServicesEnv
from rlinf_envs.tools.calls import written

SERVICE = """
class TicketAPI:
    def _load_scenario(self, scenario, long_context=False):
        self.tickets = list(scenario.get("tickets", []))
        self._log = []
    def create(self, title, priority=1):
        self.tickets.append((title, priority))
        return {"id": len(self.tickets)}
    def count(self):
        return len(self.tickets)
    def raise_to(self, exponent):
        return 2 ** exponent
    def drop(self, number):
        raise IndexError(f"no ticket {number}")
"""
PACKAGE = ("bfcl_eval", "eval_checker", "multi_turn_eval", "func_source_code")


def described(name: str) -> dict[str, Any]:
    return {"name": name, "description": f"This is a shop. Tool description: {name}.", "parameters": {}, "response": {}}


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path
    for name in PACKAGE:
        folder /= name
        folder.mkdir()
        (folder / "__init__.py").write_text("")
    for module in MODULES.values():
        (folder / f"{module}.py").write_text(SERVICE if module == "ticket_api" else "")
    data = tmp_path / PACKAGE[0] / "data"
    (data / "multi_turn_func_doc").mkdir(parents=True)
    (data / "possible_answer").mkdir()
    for module in MODULES.values():
        names = ("create", "count", "raise_to", "drop") if module == "ticket_api" else ()
        lines = "".join(json.dumps(described(name)) + "\n" for name in names)
        (data / "multi_turn_func_doc" / f"{module}.json").write_text(lines)
    messages = [[{"role": "user", "content": f"{verb} it."}] for verb in ("Count", "Create", "Check")]
    task = {"id": "t", "question": messages, "initial_config": {"TicketAPI": {"tickets": ["a"]}}}
    task["involved_classes"] = ["TicketAPI"]
    accepted = {"id": "t", "ground_truth": [["count()"], ["create('new', priority=2)"], ["count()"]]}
    later = {**task, "question": [messages[0], [], messages[2]], "missed_function": {"1": ["create"]}}
    missing = {"id": "t", "ground_truth": [[], ["create('new', 2)"], ["count()"]]}
    for category, row, answer in (("base", task, accepted), ("miss_func", later, missing)):
        file = f"BFCL_v4_multi_turn_{category}.json"
        (data / file).write_text(json.dumps(row) + "\n")
        (data / "possible_answer" / file).write_text(json.dumps(answer) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [name for name in sys.modules if name.startswith("bfcl_eval")]:
        del sys.modules[name]


def begun(**settings: Any) -> tuple[FunctionServicesEnv, str]:
    env = FunctionServicesEnv(**settings)
    return env, env.reset(seed=0, options={"task_id": 0})[0]


def test_calls_change_services_and_each_right_turn_pays_its_share() -> None:
    env, prompt = begun()
    assert '{"name": "create", "description": "create.", "parameters": {}}' in prompt
    assert prompt.endswith("Count it.")
    assert env.step(written("count", {})) == ("1", 0.0, False, False, {"role": "tool"})
    assert env.step("Done.")[:3] == ("Create it.", pytest.approx(1 / 3), False)
    assert env.step(written("create", {"title": "new", "priority": 2}))[0] == '{"id": 2}'
    assert env.step("Done.")[0] == "Check it."
    env.step(written("count", {}))
    assert env.step("Done.")[1:] == (pytest.approx(1 / 3), True, False, {"success": True})


@pytest.mark.parametrize(
    "response",
    [
        "",
        written("raise_to", {"exponent": 3}),
        written("count", {}) + written("create", {"title": "new"}),
        "<tool_call>{</tool_call>",
    ],
    ids=["none", "another", "one too many", "broken"],
)
def test_what_was_not_requested_ends_the_conversation(response: str) -> None:
    env, _ = begun()
    if response:
        assert env.step(response)[2] is False
    assert env.step("Done.")[1:] == (0.0, True, False, {"success": False})


def test_the_expert_solves_tasks_whose_functions_come_later_too() -> None:
    for category in ("base", "miss_func"):
        env, observation = begun(categories=[f"multi_turn_{category}"])
        ended, total = False, 0.0
        assert ('"create"' in observation) is (category == "base")
        while not ended:
            observation, reward, ended, _, info = env.step(env.demonstrate(observation))
            total += reward
            assert category == "base" or "further functions" not in observation or '"create"' in observation
        assert (info["success"], total) == (True, pytest.approx(1))


def test_errors_of_calls_are_answers() -> None:
    env, _ = begun()
    for name, arguments, problem in (
        ("drop", {"number": 7}, "no ticket 7"),
        ("close", {}, "'close' is not defined"),
        ("raise_to", {"exponent": 10**9}, "at most 1000"),
        ("create", {"colour": "red"}, "unexpected keyword argument 'colour'"),
        ("_load_scenario", {"scenario": {}}, "not defined"),
    ):
        observation, _, ended, _, _ = env.step(written(name, arguments))
        assert problem in observation
        assert not ended


def test_tasks_can_be_made_shorter() -> None:
    _, prompt = begun(turns=1, others=1)
    assert [name for name in ("count", "create", "raise_to") if f'"{name}"' in prompt] == ["count", "create"]
    env, prompt = begun(turns=1, others=0)
    assert '"create"' not in prompt
    env.step(written("count", {}))
    assert env.step("Done.")[1:3] == (1.0, True)


def test_what_does_not_exist_is_named() -> None:
    with pytest.raises(SettingError, match="multi_turn_base"):
        begun(categories=["multi_turn"])
    with pytest.raises(SettingError, match="TicketAPI"):
        begun(services=["Ticket"])
    with pytest.raises(SettingError, match="turns"):
        begun(turns=0)
    with pytest.raises(DatasetError, match="no task"):
        begun(services=["MathAPI"])
