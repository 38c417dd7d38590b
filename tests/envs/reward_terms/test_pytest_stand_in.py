"""The stand-in for pytest judges as pytest does."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from rlinf_envs.reward_terms import pytest_stand_in as stand_in
from rlinf_envs.reward_terms.pytest_tests import collected


@pytest.mark.parametrize(
    ("actual", "expected", "options"),
    [
        (0.1 + 0.2, 0.3, {}),
        (1, 1.0000001, {}),
        (1, 1.1, {}),
        (1, 1.1, {"rel": 0.2}),
        (1, 1.1, {"abs": 0.05}),
        (1e-13, 0.0, {}),
        (100, 101, {"abs": 0.5}),
        (100, 101, {"rel": 0.001, "abs": 2}),
        ([1.0, 2.0], [1, 2.0000001], {}),
        ((1.0, 2.0), [1, 3], {}),
        ({"a": 0.3}, {"a": 0.1 + 0.2}, {}),
        ({"a": 0.3}, {"b": 0.3}, {}),
        (math.inf, math.inf, {}),
        (1.0, math.inf, {}),
        (math.nan, math.nan, {}),
        (math.nan, math.nan, {"nan_ok": True}),
        (Fraction(1, 3), Fraction(1, 3), {}),
        (Decimal("0.3"), Decimal("0.30000001"), {}),
        (1 + 1e-9j, 1 + 0j, {}),
        ("a", "a", {}),
        (None, None, {}),
        (None, 1.0, {}),
    ],
)
def test_approx_equals_what_that_of_pytest_equals(actual: Any, expected: Any, options: dict[str, Any]) -> None:
    assert (actual == stand_in.approx(expected, **options)) is (actual == pytest.approx(expected, **options))


def test_raises_takes_the_error_and_its_text() -> None:
    with stand_in.raises((KeyError, ValueError), match="no \\w+") as error:
        raise ValueError("no value")
    assert (error.type, str(error.value)) == (ValueError, "no value")
    stand_in.raises(ZeroDivisionError, lambda x: 1 / x, 0)
    with pytest.raises(AssertionError, match="did not raise"), stand_in.raises(ValueError):
        pass
    with pytest.raises(AssertionError, match="does not match"), stand_in.raises(ValueError, match="other"):
        raise ValueError("no value")
    with pytest.raises(TypeError), stand_in.raises(ValueError):
        raise TypeError


FILE = """
import unittest
from pytest import fixture, mark

@fixture(scope="module")
def base():
    steps.append("open")
    yield 1
    steps.append("close")

@fixture
def double(base):
    return 2 * base

@mark.slow
@mark.parametrize("x", [0, 1])
@mark.parametrize(("y", "z"), [(2, 3), (4, 5)])
def test_cases(x, y, z, base, double, more=7):
    steps.append((x, y, z, base, double, more))

class TestSteps:
    def setup_method(self, method):
        self.ready = True

    def test_ready(self, capsys):
        print("text")
        assert self.ready and capsys.readouterr().out == "text\\n"

    def test_wrong(self):
        assert not self.ready

class Checks(unittest.TestCase):
    def setUp(self):
        self.value = 2

    def test_value(self):
        self.assertEqual(self.value, 2)

    def test_wrong(self):
        self.assertEqual(self.value, 3)

def helper(): ...

test_cases()
if __name__ == "__main__":
    unittest.main()
"""


def test_functions_run_as_pytest_runs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    text, tests = collected(FILE)
    assert tests == (
        "test_cases",
        "TestSteps.test_ready",
        "TestSteps.test_wrong",
        "Checks.test_value",
        "Checks.test_wrong",
    )
    names: dict[str, Any] = {"steps": [], "__name__": "tests"}
    monkeypatch.setitem(__import__("sys").modules, "pytest", stand_in)
    exec(text, names)
    stand_in.run_test(names, "test_cases")
    cases = [(x, y, z, 1, 2, 7) for y, z in ((2, 3), (4, 5)) for x in (0, 1)]
    assert names["steps"] == [step for case in cases for step in ("open", case, "close")]
    stand_in.run_test(names, "TestSteps.test_ready")
    stand_in.run_test(names, "Checks.test_value")
    for wrong in ("TestSteps.test_wrong", "Checks.test_wrong"):
        with pytest.raises(AssertionError):
            stand_in.run_test(names, wrong)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import pytest as p\ndef test_f():\n    p.importorskip('a')", r"uses pytest\.importorskip"),
        ("from pytest import warns\ndef test_f(): ...", r"uses pytest\.warns"),
        ("import pytest\n@pytest.mark.skip\ndef test_f(): ...", r"uses pytest\.mark\.skip"),
        ("import pytest\n@pytest.fixture(autouse=True)\ndef f(): ...\ndef test_f(): ...", r"fixture\(autouse=\)"),
        ("def test_f(tmp_path): ...", "the fixture tmp_path"),
        ("async def test_f(): ...", "the async test test_f"),
        ("def test_f(:", "is no Python"),
    ],
)
def test_what_it_does_not_have_is_named(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        collected(text)
