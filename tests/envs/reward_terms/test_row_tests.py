"""Rows of public data sets with tests of programs: right programs pass, wrong ones and forgeries do not."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from typing import Any

import pytest
from rlinf_envs.errors import SettingError
from rlinf_envs.reward_terms.code_tests import code_tests
from rlinf_envs.sandbox.run import working_kind

try:
    working_kind()
except SettingError as error:
    pytest.skip(str(error), allow_module_level=True)


def score(program: str, field: str | list[str], row: dict[str, Any]) -> float:
    response = f"<think>```python\nx = 1\n```</think>Here it is:\n\n```python\n{program}\n```\n\nIt runs in O(n)."
    return float(code_tests(field=field, time_s=2.0)(prompt="", response=response, answer="", row=row))


def packed(tests: Any) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


MEAN = """
def mean_positive(values):
    positive = [value for value in values if value > 0]
    if not positive:
        raise ValueError("no positive value")
    return sum(positive) / len(positive)

if __name__ == "__main__":
    print(mean_positive([float(x) for x in input().split()]))
"""
ALL_MEAN = "def mean_positive(values):\n    return sum(values) / len(values)"
KODCODE = """
import pytest
from solution import mean_positive

@pytest.fixture
def few():
    yield [1, 2, 3]

@pytest.mark.parametrize("values, mean", [([0.1, 0.2, -7], 0.15), pytest.param([5], 5.0, id="one")])
def test_mean(values, mean):
    assert mean_positive(values) == pytest.approx(mean)

def test_few(few) -> None:
    assert mean_positive(few) == 2

class TestErrors:
    def test_no_positive_value(self):
        with pytest.raises(ValueError, match="no positive"):
            mean_positive([-1, 0])

if __name__ == "__main__":
    pytest.main()
"""
PROMPT = """
from typing import *
from math import *
import sortedcontainers

class ListNode:
    def __init__(self, val=0, next=None):
        self.val, self.next = val, next

def list_node(values):
    head = None
    for value in reversed(values):
        head = ListNode(value, head)
    return head

def is_same_list(one, other):
    while one and other and one.val == other.val:
        one, other = one.next, other.next
    return one is None and other is None
"""
LIST_TEST = """
def check(candidate):
    assert is_same_list(candidate(head = list_node([1, 2, 3])), list_node([3, 2, 1]))
    assert is_same_list(candidate(head = list_node([])), list_node([]))
"""
LIST_ROW = {"prompt": PROMPT, "test": LIST_TEST, "entry_point": "Solution().reverseList"}
HUMAN_EVAL = """
from typing import List
limit = unknown

def double(x):
    return 2 * x

def total(xs: List[int]) -> int:
    \"\"\"Return the sum of the doubled values.\"\"\"
"""
TOTAL = "def total(xs: List[int]) -> int:\n    return sum(map(double, xs))"
HALF = "def double(x): return x\ndef total(xs): return sum(xs)"
TOTAL_TEST = "def check(candidate):\n    assert candidate([1, 2]) == double(3)"
REVERSE = """
class Solution:
    def reverseList(self, head: Optional[ListNode]) -> Optional[ListNode]:
        last = None
        while head:
            head.next, last, head = last, head, head.next
        return last
"""
KEEP = "class Solution:\n    def reverseList(self, head):\n        return head"
SUM = "import sys\nsys.setrecursionlimit(10**6)\nn = int(input())\nprint(sum(map(int, input().split())), '')\nexit(0)"
FIRST = "input()\nprint(input().split()[0])"
INPUTS, OUTPUTS = ["2\n1 2\n", "1\n7\n", "2\n-1 4"], ["3\n", "7\n", "3"]
TYPED = [{"input": typed, "output": printed} for typed, printed in zip(INPUTS, OUTPUTS, strict=True)]
TWO_SUM = """
class Solution:
    def helper(self): ...
    def twoSum(self, nums: List[int], target: int) -> List[int]:
        for j in range(len(nums)):
            for i in range(j):
                if nums[i] + nums[j] == target:
                    return [i, j]
    def unused(self): ...
"""
NO_SUM = "class Solution:\n    def twoSum(self, nums, target):\n        return [0, 0]"
FUNCTIONAL = [
    {"input": "[2, 7, 11]\n9", "output": "[0, 1]", "testtype": "functional"},
    {"input": "[3, 2, 4]\n6", "output": "[1, 2]", "testtype": "functional"},
]
CALLED = [{"type": "function_call", "fn_name": "twoSum", "input": [[3, 3], 6], "output": [0, 1]}]
ASSERTS = ["assert mean_positive([1, 2, -3]) == 1.5", "assert mean_positive([4]) == 4"]
TWO_SUM_TEST = "def check(f):\n    assert f(nums=[2, 7], target=9) == [0, 1]\n\ncheck(Solution().twoSum)"
STARTER = "class Solution:\n    def twoSum(self, nums: List[int], target: int) -> List[int]:\n        "


def verl(truth: Any) -> dict[str, Any]:
    return {"reward_model": {"ground_truth": json.dumps(truth)}, "extra_info": {"prefix": "from typing import *"}}


ROWS: dict[str, tuple[str, str, str | list[str], dict[str, Any]]] = {
    "KodCode": (MEAN, ALL_MEAN, "test", {"test": KODCODE}),
    "HumanEval": (TOTAL, HALF, "test", {"prompt": HUMAN_EVAL, "test": TOTAL_TEST, "entry_point": "total"}),
    "LeetCodeDataset": (REVERSE, KEEP, "test", LIST_ROW),
    "LiveCodeBench, read": (
        SUM,
        FIRST,
        ["public_test_cases", "private_test_cases"],
        {"public_test_cases": json.dumps(TYPED[1:2]), "private_test_cases": packed(TYPED[::2])},
    ),
    "LiveCodeBench, called": (
        TWO_SUM,
        NO_SUM,
        ["public_test_cases", "private_test_cases"],
        {
            "public_test_cases": json.dumps(FUNCTIONAL[:1]),
            "private_test_cases": packed(FUNCTIONAL[1:]),
            "metadata": '{"func_name": "twoSum"}',
        },
    ),
    "CodeContests": (
        SUM,
        FIRST,
        ["public_tests", "private_tests", "generated_tests"],
        {
            "public_tests": {"input": INPUTS[:1], "output": OUTPUTS[:1]},
            "private_tests": {"input": [], "output": []},
            "generated_tests": {"input": INPUTS[1:], "output": OUTPUTS[1:]},
        },
    ),
    "Codeforces": (SUM, FIRST, "official_tests", {"official_tests": TYPED}),
    "SYNTHETIC-1": (
        SUM,
        FIRST,
        "verification_info",
        {"verification_info": json.dumps({"language": "python", "test_cases": TYPED})},
    ),
    "PrimeIntellect": (
        TWO_SUM,
        NO_SUM,
        "verification_info",
        {"verification_info": {"language": "python", "test_cases": CALLED}},
    ),
    "DeepCoder in verification_info": (
        SUM,
        FIRST,
        "verification_info",
        {"verification_info": json.dumps({"ground_truth": json.dumps({"inputs": INPUTS, "outputs": OUTPUTS})})},
    ),
    "DeepCoder": (
        TWO_SUM,
        NO_SUM,
        "tests",
        {"tests": json.dumps([{**test, "metadata": {"func_name": "twoSum"}} for test in FUNCTIONAL])},
    ),
    "rStar-Coder": (SUM, FIRST, "inputs", {"inputs": json.dumps(INPUTS), "outputs": json.dumps(OUTPUTS)}),
    "rStar-Coder, called": (
        TWO_SUM,
        NO_SUM,
        "inputs",
        {"inputs": ["[[3, 3], 6]"], "outputs": ["[0, 1]"], "starter_code": STARTER},
    ),
    "AceCode": (MEAN, ALL_MEAN, "test_cases", {"test_cases": ASSERTS}),
    "verl, inputs": (SUM, FIRST, "reward_model.ground_truth", verl({"inputs": INPUTS, "outputs": OUTPUTS})),
    "verl, assertions": (MEAN, ALL_MEAN, "reward_model.ground_truth", verl({"assert_case": ASSERTS})),
    "verl, functional": (TWO_SUM, NO_SUM, "reward_model.ground_truth", verl({"functional": TWO_SUM_TEST})),
    "verl, pytest": (MEAN, ALL_MEAN, "reward_model.ground_truth", verl({"pytest": KODCODE})),
}


@pytest.mark.parametrize("name", ROWS)
def test_right_programs_pass_and_wrong_ones_do_not(name: str) -> None:
    right, wrong, field, row = ROWS[name]
    assert score(right, field, row) == 1.0
    assert score(wrong, field, row) < 1.0


def test_each_test_function_counts_once() -> None:
    assert score(ALL_MEAN, "test", {"test": KODCODE}) == pytest.approx(1 / 3)


LYING_PYTEST = """
import sys, types
class Same:
    def __eq__(self, other):
        return True
class raises:
    def __init__(self, *types, **options): ...
    def __enter__(self): ...
    def __exit__(self, *error):
        return True
lie = types.SimpleNamespace(run_test=lambda *test: None, approx=lambda x: Same(), raises=raises)
sys.modules["pytest"] = lie
def mean_positive(values):
    return Same()
"""
LYING_HELPERS = f"def is_same_list(one, other):\n    return True\n{KEEP}"
LYING_BUILTINS = "import builtins\nbuiltins.compile = lambda *text: 'pass'\nbuiltins.exec = lambda *text: None\n"
EQUAL_TO_ALL = "class Same:\n    def __eq__(self, other):\n        return True\ndef f(x):\n    return "
UNITTEST = """
import unittest
class Checks(unittest.TestCase):
    def test_f(self):
        self.assertEqual(f(1), 2)
"""


@pytest.mark.parametrize(
    ("program", "row"),
    [
        (LYING_PYTEST, {"test": KODCODE}),
        (LYING_HELPERS, LIST_ROW),
        (f"{LYING_BUILTINS}{KEEP}", LIST_ROW),
        (f"{EQUAL_TO_ALL}Same()", {"test": "assert f(1) == 2"}),
        (f"{EQUAL_TO_ALL}[Same()]", {"test": "def check(f):\n    assert [2] == f(1)", "entry_point": "f"}),
        (f"{EQUAL_TO_ALL}Same()", {"test": UNITTEST}),
        ("import os\ndef f(x):\n    os._exit(0)", {"test": UNITTEST}),
        ("def f(x): return 0", {"test": ["def test_one():\n    assert f(1) == 2", "assert f(1) == 2"]}),
    ],
)
def test_lies_pass_no_test(program: str, row: dict[str, Any]) -> None:
    assert score(program, "test", row) == 0.0


def test_a_program_that_has_the_mark_cannot_forge_the_results_of_calls() -> None:
    forged = (
        "import os, re\nmark = re.search('[0-9a-f]{32}', open('/tmp/program.py').read())[0]\n"
        "os.write(1, f'\\n{mark}true\\n{mark}1\\n'.encode())\nos._exit(0)"
    )
    row = {"tests": {"fn_name": "f", "inputs": [[1], [2]], "outputs": [2, 4]}}
    assert score(forged, "tests", row) == 0.0


def test_classes_that_equal_their_own_kind_or_a_number_pass() -> None:
    program = """
from __future__ import annotations
from dataclasses import dataclass
@dataclass
class Point:
    x: int
class Money:
    def __init__(self, sum): self.sum = sum
    def __eq__(self, other): return self.sum == getattr(other, "sum", other)
"""
    assert score(program, "test", {"test": ["assert Point(1) == Point(1)", "assert [Money(5)] == [5]"]}) == 1.0


def test_long_outputs_are_compared_whole() -> None:
    numbers = [str(number) for number in range(50_000)]
    row = {"tests": {"inputs": [" ".join(numbers)], "outputs": ["\n".join(numbers)]}}
    assert score("print('\\n'.join(input().split()))", "tests", row) == 1.0
    assert score("print('\\n'.join(input().split()[:-1]))", "tests", row) == 0.0


@pytest.mark.parametrize(
    ("field", "row", "message"),
    [
        ("test", {"test": "import numpy as np\ndef test_f():\n    assert f(1)"}, "imports numpy, which the sandbox"),
        ("test", {"test": "import pytest\ndef test_f():\n    pytest.skip()"}, r"uses pytest\.skip"),
        ("test", {"test": "def test_f(monkeypatch):\n    assert f(1)"}, "the fixture monkeypatch"),
        ("test", {"test": "Write a function f."}, "is no Python"),
        ("info", {"info": {"language": "cpp", "test_cases": TYPED}}, "has tests of programs in cpp"),
        (
            ["tests", "more"],
            {"tests": TYPED, "more": CALLED},
            "fields tests, more of a row hold tests of several kinds",
        ),
        ("info.truth", {"info": {"tests": TYPED}}, "unknown field of the row 'info.truth'"),
        ("tests", {"tests": {"inputs": [], "outputs": []}}, "holds no test"),
    ],
)
def test_rows_that_cannot_be_graded_are_named(field: str | list[str], row: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        score("def f(x): return x", field, row)
