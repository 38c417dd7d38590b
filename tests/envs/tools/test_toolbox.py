"""Tools from functions and classes, and what they answer to calls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rlinf_envs.dialogue import Dialogue, End
from rlinf_envs.errors import SettingError
from rlinf_envs.tools.calls import calls_in, written
from rlinf_envs.tools.tool import MAX_RESULT_CHARS, tool_of
from rlinf_envs.tools.toolbox import Toolbox

CONVERT, BASKET = "example_tools:convert", "example_tools:Basket"


def test_the_schema_comes_from_signature_and_docstring() -> None:
    (schema,) = Toolbox([CONVERT]).schemas
    assert schema == {
        "type": "function",
        "function": {
            "name": "convert",
            "description": "Converts a length between units.",
            "parameters": {
                "type": "object",
                "properties": {
                    "amount": {"type": "number", "description": "how much of it"},
                    "unit": {"type": "string", "enum": ["km", "mile"], "description": "of the amount"},
                    "digits": {"type": "integer"},
                },
                "required": ["amount", "unit"],
            },
        },
    }


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (written("convert", {"amount": 5, "unit": "km"}), "3.1"),
        (written("convert", {"amount": "5", "unit": "km", "digits": 2.0}), "3.11"),
        (
            '<tool_call>\n{"name": "convert", "arguments": "{\\"amount\\": 5, \\"unit\\": \\"km\\"}"}\n</tool_call>',
            "3.1",
        ),
        (written("convert", {"amount": 5, "unit": "m"}), 'must be one of ["km", "mile"]'),
        (written("convert", {"amount": True, "unit": "km"}), "'amount' must be of type number, got true"),
        (written("convert", {"unit": "km"}), "the argument 'amount' is missing"),
        (written("convert", {}), "error: convert: the arguments 'amount' and 'unit' are missing"),
        (written("convert", {"amount": 5, "units": "km"}), "unknown argument 'units'; did you mean 'unit'"),
        (written("konvert", {}), "unknown tool 'konvert'; did you mean 'convert'"),
        ("<tool_call>{oops}</tool_call>", "the call is no valid JSON"),
        ('<tool_call>["convert"]</tool_call>', 'an object with "name" and "arguments"'),
    ],
)
def test_what_is_wrong_with_a_call_is_its_answer(response: str, answer: str) -> None:
    result = Toolbox([CONVERT]).answer(0, response)
    assert result is not None
    assert result == answer or answer in result


def test_a_response_without_calls_is_not_for_tools() -> None:
    assert Toolbox([CONVERT]).answer(0, "5 km are 3.1 miles") is None
    assert [call.name for call in calls_in(written("a", {}) + "and" + written("b", {}))] == ["a", "b"]


def test_each_conversation_has_objects_of_its_own() -> None:
    tools = Toolbox([{BASKET: {"room": 3}}, CONVERT])
    assert tools.names == ("convert", "put")
    tools.begin(0)
    tools.begin(1)
    both = written("put", {"thing": "egg"}) + written("put", {"thing": "jam"})
    assert tools.answer(0, both) == '["egg"]\n["egg", "jam"]'
    assert tools.answer(1, written("put", {"thing": "tea"})) == '["tea"]'
    tools.begin(0)
    assert tools.answer(0, written("put", {"thing": "egg"})) == '["egg"]'


def test_a_long_answer_is_shortened() -> None:
    assert tool_of(lambda: "x" * 5000, name="long").answer({}) == "x" * MAX_RESULT_CHARS + " ... (1000 more characters)"


def test_a_search_finds_what_fits_best(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    texts = ["The red fox jumps.", "A blue whale swims in the sea.", "The sea is blue and the sea is deep."]
    corpus.write_text("".join(json.dumps({"text": text, "title": str(i)}) + "\n" for i, text in enumerate(texts)))
    tools = Toolbox([{"search": {"path": str(corpus), "title_field": "title", "count": 2, "chars": 12}}])
    assert tools.answer(0, written("search", {"query": "the SEA?"})) == "[1] 2: The sea i ...\n[2] 1: A blue wh ..."
    assert tools.answer(0, written("search", {"query": "zebra"})) == "nothing was found"


def test_the_python_tool_prints() -> None:
    try:
        tools = Toolbox(["python"])
    except SettingError as error:
        pytest.skip(str(error))
    assert tools.answer(0, written("python", {"code": "print(2 ** 10)"})) == "1024"
    assert tools.answer(0, written("python", {"code": "x = 1"})) == "(nothing was printed)"
    assert "ZeroDivisionError" in str(tools.answer(0, written("python", {"code": "1 / 0"})))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("serch", "unknown tool 'serch'; did you mean 'search'"),
        ("example_tools:konvert", "unknown tool 'konvert'; did you mean 'convert'"),
        ("no_such_module:f", "cannot import 'no_such_module'"),
        ("example_tools:untyped", "the parameter amount has no type"),
        ({"python": {"timeout": 3}}, "python: got an unexpected keyword argument 'timeout'"),
        ({BASKET: {"rooms": 3}}, "Basket: got an unexpected keyword argument 'rooms'"),
        ({CONVERT: {"a": 1}}, "convert is a function and takes no options"),
        ({"mcp": {}}, "tool mcp needs command .* or url"),
    ],
)
def test_mistakes_in_the_setting_are_named(setting: object, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Toolbox([setting])  # type: ignore[list-item]
    with pytest.raises(SettingError, match="two tools called convert"):
        Toolbox([CONVERT, CONVERT])


class Shopper(Dialogue):
    """Its own method is a tool, in addition to one of a module."""

    def __init__(self) -> None:
        self.tools = [self.price, CONVERT]

    def price(self, thing: str) -> int:
        """What a thing costs."""
        return self.cents + len(thing)

    def begin(self) -> str:
        self.cents = int(self.np_random.integers(100))
        return "What is the price of tea?"

    def reply(self, response: str) -> End:
        return End(float(response == str(self.cents + 3)))


def test_a_dialogue_offers_its_methods() -> None:
    env = Shopper()
    env.reset(seed=1)
    assert [schema["function"]["name"] for schema in env.tool_schemas] == ["price", "convert"]
    answer, reward, ended, _, info = env.step(written("price", {"thing": "tea"}))
    assert (answer, reward, ended, info) == (str(env.cents + 3), 0.0, False, {"role": "tool"})
    assert env.step(answer)[1:3] == (1.0, True)


def test_values_that_were_written_as_text_are_read_by_their_type() -> None:
    def find(exact: bool, years: list[int], filters: dict[str, int]) -> str:
        return json.dumps([exact, years, filters])

    tool = tool_of(find)
    assert tool.answer({"exact": "True", "years": "[1990]", "filters": '{"a": 1}'}) == '[true, [1990], {"a": 1}]'
    assert tool.answer({"exact": "false", "years": [], "filters": "{'a': 1}"}) == '[false, [], {"a": 1}]'
    assert "'exact' must be of type boolean" in tool.answer({"exact": "perhaps", "years": [], "filters": {}})


def test_numbers_without_quotes_are_texts_where_a_tool_takes_text() -> None:
    def find(code: str) -> str:
        return code

    tool = tool_of(find)
    assert [tool.answer({"code": value}) for value in ("007", 12, True)] == ["007", "12", "true"]
    assert "must be of type string" in tool.answer({"code": 1.5})
