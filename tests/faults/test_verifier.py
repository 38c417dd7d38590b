"""The verifier under hostile responses: linear in their length, bounded per answer, and never right about a hedge.

Times are CPU times, and compared with each other: a pass over four times the text may take about four times as long.
"""

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest
from rlinf_envs.equations import equations
from rlinf_envs.extraction import ANSWER_FORMATS, extract
from rlinf_envs.math import verify
from rlinf_envs.math.calculator import Calculator
from rlinf_envs.math.final_answer import final_answer
from rlinf_envs.math.grading import grade, grade_cheaply
from rlinf_envs.math.pool import VerifierPool
from rlinf_envs.math.size import too_large
from rlinf_envs.reward_formats import FORMATS
from rlinf_envs.reward_terms.choice import chosen
from rlinf_envs.reward_terms.constraints import constraints
from rlinf_envs.reward_terms.exact import exact
from rlinf_envs.reward_terms.programs import program_of
from rlinf_envs.reward_terms.verdicts import grade_in
from rlinf_envs.steps import split_steps
from rlinf_envs.tasks import Task
from rlinf_envs.tools.calls import calls_in

# {} is where the repeated text goes: prefix, unit, suffix.
SHAPES: dict[str, tuple[str, str, str]] = {
    "spaces after an announced answer": ("The answer is x", " ", "y"),
    "spaces in a box": (r"\boxed{1", " ", "2}"),
    "spaces behind a box": (r"\boxed", " ", "x"),
    "spaces behind hashes": ("#### x", " ", "\ny"),
    "hashes and spaces": ("#### ", " ", "x"),
    "digits behind hashes": ("#### ", "1", ""),
    "digits in a box": (r"\boxed{", "1", "}"),
    "digits and a base": (r"\boxed{", "1", "_x}"),
    "an exponent of digits": (r"\boxed{1e", "9", "}"),
    "decimals": (r"\boxed{0.", "3", "}"),
    "thousands": (r"\boxed{1", ",111", "x}"),
    "an open answer tag": ("<answer>", "a", ""),
    "open answer tags": ("", "<answer>", ""),
    "nested answer tags": ("", "<answer>a", "</answer>"),
    "thoughts": ("<think>", "a", "</think><answer>1"),
    "open boxes": ("", r"\boxed{", ""),
    "boxes": ("", r"\boxed{1}", ""),
    "braces in a box": (r"\boxed{", "{", "}"),
    "brackets": (r"\boxed{", "[(", "}"),
    "parentheses": ("", "(", ""),
    "nested roots": (r"\boxed{", "sqrt(", "}"),
    "fractions": (r"\boxed{", r"\frac{1}{", "2}"),
    "a list": (r"\boxed{", "1,", "1}"),
    "a chain": (r"\boxed{x", "=1", "}"),
    "a chain on the last line": ("1", " = 1", ""),
    "sums on the last line": ("1", " + 1", " = 5"),
    "choices": (r"\boxed{(B)", " or (C)", "}"),
    "words": ("the answer is ", "word ", "."),
    "answers": ("", "answer: ", ""),
    "conclusions": ("", "is the answer ", ""),
    "dollars": ("", "$", ""),
    "separate dollars": ("the answer is ", "$ ", ""),
    "escapes": (r"\boxed{", "\\", "}"),
    "commands": (r"\boxed{", r"\text", "{x}}"),
    "a variable": (r"\boxed{x_", "a", "=1}"),
    "units": (r"\boxed{5 ", "cm ", "}"),
    "relations": (r"\boxed{1", "<x", "}"),
    "calls": ("<calc>", "1+", "</calc>"),
    "open calls": ("", "<calc>", ""),
    "blank lines": ("x", "\n", "y"),
    "marks of thoughts": ("", "<think>a</think>", "5"),
    "headings": ("", "#### Step\n", "x"),
    "answers in JSON": ("", '"answer": "a", ', "}"),
    "a row of boxes": ("", r"\boxed{1} and ", ""),
    "commands that dress": (r"\boxed{", r"\textbf{", "1}"),
    "transposes": (r"\boxed{(1,2)", "^T", "}"),
    "values of an unknown": (r"\boxed{", "x=1 or ", "y=2}"),
    "points and capitals": ("A", ". A", "."),
    "dividers": ("a", "\n***\n", "a"),
    "list items": ("", "- a\n", "1. a."),
    "stars": ("*a", "* ", "a*"),
    "open placeholders": ("", "[a ", "]"),
    "open fences": ("", "```python\ndef f(x): f\n", "x"),
    "fences": ("", "```\ndef f(x): f\n```\n", "x"),
    "lines of code": ("", "x = 1\n", "x"),
    "scores": ("Score: ", "score (", "8"),
    "grades": ("I give it ", "8/10 ", "9"),
    "open calls of tools": ("", "<tool_call>", "x"),
    "calls of tools": ("", "<tool_call>{}</tool_call>", "x"),
    "values in a call": ("<tool_call>", '{"a": 1} ', "</tool_call>"),
    "a matrix": (r"\boxed{\begin{pmatrix}", r"1 & 2 \\ ", r"\end{pmatrix}}"),
}  # fmt: skip
SIZES = (2_000, 8_000, 32_000, 64_000)
_INSTRUCTED = constraints(
    require={
        "max_words": 9, "max_sentences": 9, "paragraphs": 2, "bullets": 2, "keywords": ["a b"], "ends_with": "x",
        "json": True, "title": True, "placeholders": 2, "postscript": "P.P.S.", "quoted": True, "no_commas": True,
    }
)  # fmt: skip
_FLOOR_S = 0.004
"""Below this a measured time is noise."""


def _text(shape: str, size: int) -> str:
    prefix, unit, suffix = SHAPES[shape]
    return prefix + unit * ((size - len(prefix) - len(suffix)) // len(unit)) + suffix


def _grade(text: str) -> None:
    answer = final_answer(text)
    for reference in ("12", "(1, 2)", "B", r"\frac{1}{2} cm", "12_5", "x=1"):
        if answer is not None:
            grade_cheaply(answer, reference)


def _formats(text: str) -> None:
    for answer_format in ANSWER_FORMATS:
        extract(text, answer_format)
        extract(text, answer_format, cut=True)
    for check in FORMATS.values():
        check(text)
    chosen(text, "ABCD")
    for compare in ("equal", "contains"):
        exact(compare=compare)(prompt="", response=text, answer="1", row={})
    program_of(text)
    calls_in(text)
    grade_in(text, 10)
    _INSTRUCTED(prompt="", response=text, answer="", row={})


def _turns_and_steps(text: str) -> None:
    Calculator().reply(Task("q", "1", "d"), text)
    for step in split_steps(text):
        equations(step.text)


def _cpu_s(work: Callable[[str], None], text: str) -> float:
    began = time.process_time()
    work(text)
    return time.process_time() - began


@pytest.mark.parametrize("work", [_grade, _formats, _turns_and_steps], ids=["grade", "formats", "steps"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_takes_linear_time(shape: str, work: Callable[[str], None]) -> None:
    gc.collect()
    seconds = [min(_cpu_s(work, text + suffix) for suffix in ("", " ")) for text in (_text(shape, n) for n in SIZES)]
    for index in range(len(SIZES) - 1):
        factor = SIZES[index + 1] / SIZES[index]
        assert seconds[index + 1] < 2.5 * factor * max(seconds[index], _FLOOR_S), seconds
    assert seconds[-1] < 3.0


@pytest.mark.parametrize("shape", SHAPES)
def test_the_longest_answers_that_are_parsed_take_bounded_time(shape: str) -> None:
    assert max(_cpu_s(_grade, _text(shape, size)) for size in (400, 1000)) < 0.5


HEDGES = [
    ("(B) or (C)", "B"),
    ("B) C) D)", "B"),
    ("B. or A.", "B"),
    ("(B) (C) (D)", "B"),
    ("b) no, c)", "B"),
    ("(B) 5 or C", "B"),
    ("B. C", "B"),
    ("(B), (C)", "B"),
    ("x=4=5", "5"),
    ("1=2=3=4=5", "5"),
    ("4=5", "5"),
    ("x = 2 \\cdot 3 = 7", "7"),
    ("x = \\frac{10}{3} = 4.5", "4.5"),
    ("\\sqrt{2} = 5.0", "5.0"),
    ("x+1 = x+2", "x+2"),
    ("4 or 5", "5"),
    ("4, 5", "5"),
]
PLAIN_HEDGES = [
    ("The answer is B. Or C.", "B"),
    ("The answer is (b) (c)", "B"),
    ("The answer is B if not C.", "B"),
    ("The answer is 5. Or 6.", "5"),
    ("I really think that it is 4 or 5 apples today", "5"),
    ("I really think that it is 4 apples or maybe 5 today", "5"),
]


@pytest.mark.parametrize(
    ("response", "answer"),
    [*PLAIN_HEDGES, *HEDGES, *((rf"\boxed{{{given}}}", wanted) for given, wanted in HEDGES)],
)
def test_a_hedge_or_a_chain_of_guesses_is_never_correct(response: str, answer: str) -> None:
    assert not verify(response, answer).correct


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("x = 10/2 = 5", "5"),
        ("10/2 = 5", "5"),
        ("x = y = 5", "5"),
        ("f(2) + 1 = 6", "6"),
        ("AB^2 = 25", "25"),
        ("x + 4 = 5", "5"),
        ("2 \\cdot 3 = 6", "6"),
        ("x = \\frac{10}{3} = 3.33", "3.33"),
        ("x = \\sqrt{2} = 1.41", "1.41"),
        ("50\\% = 0.5", "0.5"),
        ("x(x+1) = x^2+x", "x^2+x"),
        ("y - 2x = 3", "y = 2x+3"),
        ("(B) A and C only", "B"),
        ("(B) the point (2, a)", "B"),
        ("B. vitamin C", "B"),
        ("(b) f(a)", "B"),
    ],
)
def test_a_simplification_is_no_chain_of_guesses(given: str, wanted: str) -> None:
    assert verify(rf"\boxed{{{given}}}", wanted).correct


@pytest.mark.parametrize(
    "power",
    [
        "9^{9^{9^{9}}}",
        "9^9^9^9",
        "10^{10^{10}}",
        "(10^{9999})^{9999}",
        "((10^{10})!)!",
        "99999999!",
        "100^{100!}",
        r"\binom{10000000}{500000}",
        r"\frac{1}{2^{2^{99}}}",
    ],
)
def test_a_hostile_power_costs_nothing(power: str) -> None:
    began = time.process_time()
    assert grade_cheaply(power, r"\sqrt{2}") == grade(rf"\boxed{{{power}}}", r"\sqrt{2}")
    assert grade(rf"\boxed{{{power}}}", r"\sqrt{2}").status == "timeout"
    assert grade(rf"\boxed{{{power}}}", power).correct
    assert time.process_time() - began < 0.2


@pytest.mark.parametrize(
    "power", ["2^{2019}", "2^{2^{10}}", "x^2+y^2", "(x+1)^{100}", "(3!)!", "10^{-5}", "2^{n+1}", "2^{10} 3^{1000}"]
)
def test_a_common_power_is_worked_out(power: str) -> None:
    assert not too_large(power)


def test_a_restated_problem_is_no_answer() -> None:
    for given, wanted in ((r"\sum_{k=1}^{100} k", "5050"), (r"\int_0^1 2x dx", "1"), (r"\int_{0}^{1} 2x dx", "1")):
        assert verify(rf"\boxed{{{given}}}", wanted).status == "wrong"
        assert verify(rf"\boxed{{{given}}}", given).correct
        assert verify(rf"\boxed{{{given} = {wanted}}}", wanted).correct


@pytest.mark.parametrize(
    ("response", "settings", "status"),
    [
        ("11 coins * 10 / coin = 1", {}, "correct"),
        ("11 coins * 10 / coin = 1", {"cut": True}, "unparsable"),
        ("11 coins * 10 / coin = 1", {"extraction": "strict"}, "unparsable"),
        (r"so \boxed{1} and then", {"cut": True}, "correct"),
        (r"so \boxed{1} or \boxed{2", {"cut": True}, "correct"),
        (r"so \boxed{1", {"cut": True}, "unparsable"),
        ("<answer>1</answer> so", {"cut": True}, "unparsable"),
        ("<answer>1</answer> so", {"cut": True, "answer_format": "tag"}, "correct"),
        ("so\n#### 1", {"cut": True, "answer_format": "####"}, "unparsable"),
        ("so\n#### 1\n", {"cut": True, "answer_format": "####"}, "correct"),
        ("so\n#### 1", {"extraction": "strict", "answer_format": "####"}, "correct"),
        ("1", {"extraction": "strict", "answer_format": "plain"}, "correct"),
        ("1", {"cut": True, "answer_format": "plain"}, "unparsable"),
    ],
)
def test_an_answer_counts_only_where_it_was_stated(response: str, settings: dict[str, Any], status: str) -> None:
    assert verify(response, "1", **settings).status == status


def test_nothing_expensive_happens_outside_the_verifier_processes() -> None:
    """64 kB of each shape, graded as an environment does, with a deadline of a second for each."""
    pool = VerifierPool(timeout_s=1.0)
    began = time.process_time()
    for answer in ("12", r"\sqrt{2}"):
        pool.verify([_text(shape, 64_000) for shape in SHAPES], [answer] * len(SHAPES))
    assert time.process_time() - began < 3.0
    pool.close()
