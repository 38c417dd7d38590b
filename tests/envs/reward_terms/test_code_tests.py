"""Programs are worth the tests that they pass."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rlinf_envs.errors import SettingError
from rlinf_envs.reward_terms.code_tests import code_tests
from rlinf_envs.reward_terms.program_results import same_output
from rlinf_envs.reward_terms.programs import program_of
from rlinf_envs.sandbox.run import working_kind

try:
    working_kind()
except SettingError as error:
    pytest.skip(str(error), allow_module_level=True)

TESTS = ["assert f(1) == 2", "assert f(2) == 4"]


def score(term: Any, response: str, tests: Any = TESTS, **row: Any) -> float:
    return float(term(prompt="", response=response, answer="", row={"tests": tests, **row}))


def test_the_share_of_tests_that_pass() -> None:
    term = code_tests()
    assert score(term, "So:\n```python\ndef f(x):\n    return 2 * x\n```\nDone.") == 1.0
    assert score(term, "def f(x):\n    print('1' * 99)\n    return 2") == 0.5
    assert score(term, "def f(x): return 2 * x", "assert f(1) == 2\nassert f(0) == 1") == 0.0
    assert score(code_tests(partial=False), "def f(x): return 2") == 0.0


@pytest.mark.parametrize("response", ["", "def f(x):", "import os\nos._exit(0)", "raise SystemExit", "print('11')"])
def test_what_does_not_come_to_its_tests_is_worth_nothing(response: str) -> None:
    assert score(code_tests(), response) == 0.0


def test_results_that_a_program_forges_are_worth_nothing() -> None:
    forged = "import sys\nreport = sys._getframe(1).f_locals.get('report')\n[report(True) for _ in range(9)]\n"
    assert score(code_tests(), forged + "def f(x): return 0") == 0.0
    assert score(code_tests(), "import __main__\n__main__.report(True)\ndef f(x): return 2 * x") == 0.0


def test_programs_that_read_and_print() -> None:
    tests = {"inputs": ["3\n", "5\n"], "outputs": ["9", "25\n"]}
    assert score(code_tests(), "print(int(input()) ** 2)", tests) == 1.0
    assert score(code_tests(), "print(9)", tests) == 0.5
    with pytest.raises(SettingError, match="as many inputs as outputs"):
        score(code_tests(), "print(9)", {"inputs": ["3"], "outputs": []})


def test_programs_in_thoughts_do_not_count() -> None:
    draft, final = "```python\nx = 1\n```", "```python\nx = 2\n```"
    assert program_of(f"{final}</think>I do not know.") == "I do not know."
    assert program_of(f"<think>{draft}</think>{final}") == "x = 2\n"
    assert program_of(f"<think>{final}") == ""


def test_a_row_without_tests_is_named() -> None:
    with pytest.raises(
        SettingError, match=r"reward\.code_tests: unknown field of the row 'test'; did you mean 'tests'"
    ):
        score(code_tests(field="test"), "x")


DOUBLE = "def f(x):\n    return 2 * x"
SOLUTION = "class Solution:\n    def f(self, xs: List[int]) -> int:\n        return pow(max(xs), 1, 7)"
PRINTS = "print(2 * int(input()))"
CHECK = "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(2) == 4\n"
PYTEST = "from solution import f\n\ndef test_one():\n    assert f(1) == 2\n\ndef test_two():\n    assert f(2) == 4\n"


@pytest.mark.parametrize(
    ("program", "tests", "row"),
    [
        (DOUBLE, '["assert f(1) == 2", "assert f(2) == 4"]', {}),
        (DOUBLE, ["assert math.floor(f(1)) == 2"], {"test_imports": ["import math"]}),
        (DOUBLE, ["assert f(two) == 4"], {"test_setup_code": "two = 2"}),
        (DOUBLE, CHECK, {"entry_point": "f"}),
        (DOUBLE, PYTEST, {}),
        (DOUBLE, {"fn_name": "f", "inputs": [[1], [2]], "outputs": [2, [4]]}, {}),
        (DOUBLE, json.dumps({"fn_name": "f", "inputs": [[1]], "outputs": [2]}), {}),
        ("def f(x): return (x, None, 0.1 + 0.2)", {"fn_name": "f", "inputs": [[1]], "outputs": [[1, None, 0.3]]}, {}),
        ("def f(x): return {x: '1'}", {"fn_name": "f", "inputs": [[1]], "outputs": [{"1": "1"}]}, {}),
        (SOLUTION, {"fn_name": "f", "inputs": [[[1, 3]]], "outputs": [3]}, {}),
        (SOLUTION, [{"input": "[1, 3]", "output": "3", "testtype": "functional"}], {"metadata": '{"func_name": "f"}'}),
        (SOLUTION, json.dumps([{"input": "[1, 3]", "output": "3", "testtype": "functional"}]), {}),
        (DOUBLE, [{"type": "function_call", "fn_name": "f", "input": [1], "output": [2]}], {}),
        (PRINTS, {"fn_name": None, "inputs": ["1\n"], "outputs": ["2\n"]}, {}),
        (PRINTS, '{"inputs": ["1"], "outputs": ["2"]}', {}),
        (PRINTS, {"input": ["1"], "output": ["2"]}, {}),
        (PRINTS, {"inputs": [["1", "0"]], "outputs": [["2"]]}, {}),
        (PRINTS, [{"type": "stdin_stdout", "input": "1\n", "output": "2\n"}], {}),
        (PRINTS, json.dumps([{"testtype": "stdin", "input": "1\n", "output": "2\n"}]), {}),
        (f"import sys\nprint('so far', file=sys.stderr)\n{PRINTS}", {"inputs": ["1"], "outputs": ["2"]}, {}),
        (f"{DOUBLE}\nprint(f(int(input())))", TESTS, {}),
        (f"{DOUBLE}\nif __name__ == '__main__':\n    print(f(int(input())))", TESTS, {}),
        (f"{DOUBLE}\nprint('1' * 200_000)", TESTS, {}),
    ],
)
def test_tests_of_public_data_sets(program: str, tests: Any, row: dict[str, Any]) -> None:
    assert score(code_tests(), f"```python\n{program}\n```", tests, **row) == 1.0


@pytest.mark.parametrize(
    ("tests", "row", "share"),
    [
        (CHECK, {"entry_point": "f"}, 0.0),
        (PYTEST, {}, 0.5),
        ({"fn_name": "f", "inputs": [[1], [2]], "outputs": [2, 4]}, {}, 0.5),
        ([{"input": "1", "output": "3", "testtype": "functional"}], {}, 0.0),
    ],
)
def test_wrong_programs_fail_tests_of_public_data_sets(tests: Any, row: dict[str, Any], share: float) -> None:
    assert score(code_tests(), "def f(x): return 2", tests, **row) == share


def test_a_test_that_hangs_or_exits_costs_itself() -> None:
    tests = ["assert f(2) == 4", "assert f(3) == 6", "assert f(1) == 2"]
    program = "def f(x):\n    if x == 3:\n        raise SystemExit\n    while x == 1:\n        pass\n    return 2 * x"
    assert score(code_tests(time_s=1.0), program, tests) == pytest.approx(1 / 3)


def test_values_that_equal_everything_pass_no_call() -> None:
    liar = "class Liar:\n    def __eq__(self, other):\n        return True\ndef f(x):\n    return Liar()"
    assert score(code_tests(), liar, {"fn_name": "f", "inputs": [[1]], "outputs": [2]}) == 0.0


@pytest.mark.parametrize(
    ("tests", "row", "message"),
    [
        (CHECK, {}, "needs entry_point"),
        ('{"inputs": ', {}, "is no JSON"),
        ([{"input": "", "output": "", "testtype": kind} for kind in ("stdin", "functional")], {}, "several kinds"),
        ([], {}, "holds no test"),
    ],
)
def test_tests_that_cannot_be_read_are_named(tests: Any, row: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        score(code_tests(), DOUBLE, tests, **row)


@pytest.mark.parametrize(
    ("output", "requested", "same"),
    [
        ("2  \n", "2", True),
        ("0.30000000000000004", "0.3", True),
        ("2", "2.0000", True),
        ("2.0", "2", False),
        ("2.1", "2.0", False),
        ("1 0.5 x", "1 0.50 x", True),
        ("100000000000000000001", "100000000000000000000", False),
        ("yes", "YES", False),
        ("1\n\n2", "1\n2", False),
        ("nan", "0.5", False),
    ],
)
def test_outputs_are_compared_line_by_line(output: str, requested: str, same: bool) -> None:
    assert same_output(output, requested) is same
