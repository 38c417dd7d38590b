"""Berkeley function-calling tasks: what counts as the accepted calls, and the environment over files of their form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rlinf_envs.errors import DatasetError, SettingError
from rlinf_envs.function_calls.env import NO_CALL, FunctionCallsEnv
from rlinf_envs.function_calls.matching import example, matches
from rlinf_envs.tools.calls import ToolCall, written

AREA = {
    "name": "area",
    "description": "The area of a triangle.",
    "parameters": {
        "type": "dict",
        "properties": {
            "base": {"type": "integer"},
            "height": {"type": "float"},
            "unit": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "exact": {"type": "boolean"},
            "address": {"type": "dict"},
        },
        "required": ["base"],
    },
}
ACCEPTED = {
    "area": {
        "base": [10],
        "height": [5.0],
        "unit": ["square cm", ""],
        "tags": [["A-1", "b"], ""],
        "exact": [True, ""],
        "address": [{"city": ["Rome", "roma"], "zip": ["", "00100"]}, ""],
    }
}


def call(**arguments: Any) -> ToolCall:
    return ToolCall("area", arguments)


@pytest.mark.parametrize(
    ("calls", "right"),
    [
        ([call(base=10, height=5)], True),
        ([call(base=10, height=5.0, unit="Square-CM")], True),
        ([call(base=10, height=5, tags=["a1", "B"])], True),
        ([call(base=10, height=5, address={"city": "ROMA"})], True),
        ([call(base=10, height=5, address={"city": "Paris"})], False),
        ([call(base=10, height=5, address={"zip": "00100"})], False),
        ([call(base="10", height=5)], False),
        ([call(base=10)], False),
        ([call(height=5.0)], False),
        ([call(base=10, height=5, exact=1)], False),
        ([call(base=10, height=5, colour="red")], False),
        ([call(base=10, height=5), call(base=10, height=5)], False),
        ([ToolCall("volume", {"base": 10, "height": 5})], False),
        ([], False),
    ],
)
def test_what_is_accepted(calls: list[ToolCall], right: bool) -> None:
    assert matches(calls, [ACCEPTED], [AREA]) is right


def test_several_calls_may_come_in_any_order_and_none_may_be_wanted() -> None:
    second = {"area": {"base": [3], "height": [""]}}
    calls = [call(base=3), call(base=10, height=5.0)]
    assert matches(calls, [ACCEPTED, second], [AREA])
    assert not matches([calls[1], calls[1]], [ACCEPTED, second], [AREA])
    assert matches([], [], [AREA])
    assert not matches([call(base=3)], [], [AREA])
    assert matches([example(ACCEPTED)], [ACCEPTED], [AREA])


def test_calls_that_python_calls_equal_are_distinguished() -> None:
    twice = [{"area": {"base": [3]}}] * 2
    assert matches([call(base=3), call(base=3)], twice, [AREA])
    assert not matches([call(base=3), call(base=3.0)], twice, [AREA])


def test_what_the_data_hold_in_addition_to_ordinary_values() -> None:
    """A required argument that may be left out, null for a text, and an argument without any accepted value."""
    accepted = {"area": {"base": ["", 10], "unit": [None, ""], "height": []}}
    assert example(accepted, [AREA]) == call(base=10)
    assert matches([example(accepted, [AREA])], [{"area": {**accepted["area"], "height": [""]}}], [AREA])
    assert matches([call(base=10, unit=None)], [{"area": {"base": [10], "unit": [None]}}], [AREA])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [
        {"id": f"s{number}", "question": [[{"role": "user", "content": f"Base {number}?"}]], "function": [AREA]}
        for number in range(40)
    ]
    answers = [{"id": f"s{number}", "ground_truth": [{"area": {"base": [number]}}]} for number in range(40)]
    (tmp_path / "possible_answer").mkdir()
    for name, content in (
        ("BFCL_v4_simple_python.json", rows),
        ("possible_answer/BFCL_v4_simple_python.json", answers),
        ("BFCL_v4_irrelevance.json", rows[:2]),
    ):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in content))
    return tmp_path


def test_tasks_train_and_evaluate_separately_and_their_demonstrations_are_right(folder: Path) -> None:
    train = FunctionCallsEnv(2, path=str(folder), split="train")
    held_out = FunctionCallsEnv(1, path=str(folder), split="eval")
    assert train.num_tasks + held_out.num_tasks == 40
    demonstrated = train.demonstrations([0, 1])
    (first, _), _ = train.reset(options={"task_ids": [0, 1]})
    assert '"name": "area"' in first
    wrong = written("area", {"base": -1})
    _, rewards, terminated, _, infos = train.step((demonstrated[0][1], wrong))
    assert (rewards.tolist(), terminated.tolist()) == ([1.0, 0.0], [True, True])
    assert infos["verdict"].tolist() == ["correct", "wrong"]
    train.reset(options={"task_ids": [0, 1]})
    _, _, _, _, infos = train.step(("<tool_call>{</tool_call>", "no call"))
    assert infos["verdict"].tolist() == ["unparsable", "wrong"]
    irrelevant = FunctionCallsEnv(1, path=str(folder), categories=["irrelevance"])
    irrelevant.reset(options={"task_ids": [0]})
    assert irrelevant.step((NO_CALL,))[1].tolist() == [1.0]


def test_what_is_missing_is_named(folder: Path) -> None:
    with pytest.raises(SettingError, match="simple_python"):
        FunctionCallsEnv(path=str(folder), categories=["simple"])
    with pytest.raises(DatasetError, match=r"BFCL_v4_multiple\.json"):
        FunctionCallsEnv(path=str(folder), categories=["multiple"])


def test_functions_may_be_shown_by_their_signatures_and_the_split_is_the_same(folder: Path) -> None:
    short, whole = (FunctionCallsEnv(1, path=str(folder), split="train", form=form) for form in ("signature", "schema"))
    assert "area(base: integer, height: float = ..., unit: string = ..., tags: array of string = ..." in short.prompt(0)
    assert [short.prompt(task)[-8:] for task in range(short.num_tasks)] == [
        whole.prompt(task)[-8:] for task in range(whole.num_tasks)
    ]
    with pytest.raises(SettingError, match="signature"):
        FunctionCallsEnv(path=str(folder), form="signatures")
