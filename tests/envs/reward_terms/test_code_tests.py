"""Programs are worth the tests that they pass."""

from __future__ import annotations

from typing import Any

import pytest
from rlinf_envs.errors import SettingError
from rlinf_envs.reward_terms.code_tests import code_tests, program_of
from rlinf_envs.sandbox.run import working_kind

try:
    working_kind()
except SettingError as error:
    pytest.skip(str(error), allow_module_level=True)

TESTS = ["assert f(1) == 2", "assert f(2) == 4"]


def score(term: Any, response: str, tests: Any = TESTS) -> float:
    return float(term(prompt="", response=response, answer="", row={"tests": tests}))


def test_the_share_of_tests_that_pass() -> None:
    term = code_tests()
    assert score(term, "So:\n```python\ndef f(x):\n    return 2 * x\n```\nDone.") == 1.0
    assert score(term, "def f(x):\n    print('1' * 99)\n    return 2") == 0.5
    assert score(term, "def f(x): return 2 * x", "assert f(1) == 2\nassert f(0) == 1") == 0.0
    assert score(code_tests(partial=False), "def f(x): return 2") == 0.0


@pytest.mark.parametrize("response", ["", "def f(x):", "import os\nos._exit(0)", "raise SystemExit", "print('11')"])
def test_what_does_not_come_to_its_tests_is_worth_nothing(response: str) -> None:
    assert score(code_tests(), response) == 0.0


def test_programs_that_read_and_print() -> None:
    tests = {"inputs": ["3\n", "5\n"], "outputs": ["9", "25\n"]}
    assert score(code_tests(), "print(int(input()) ** 2)", tests) == 1.0
    assert score(code_tests(), "print(9)", tests) == 0.5
    with pytest.raises(SettingError, match="as many inputs as outputs"):
        score(code_tests(), "print(9)", {"inputs": ["3"], "outputs": []})


def test_the_last_block_is_the_program() -> None:
    assert program_of("```python\na\n```\n```\nb\n```") == "b\n"
    assert program_of("a = 1") == "a = 1"


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
