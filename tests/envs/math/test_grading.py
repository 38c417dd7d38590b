"""Grading against a set of hard answers, and the cheap path against the full one."""

import json
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlinf_envs.math import Verdict, verify
from rlinf_envs.math.final_answer import final_answer
from rlinf_envs.math.grading import grade, grade_cheaply

CASES = [json.loads(line) for line in (Path(__file__).parent / "graded.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_at_least_98_percent_of_hard_answers_are_graded_right() -> None:
    assert len(CASES) >= 150
    wrong = [case for case in CASES if grade(case["response"], case["answer"]).correct != case["correct"]]
    false_positives = [case for case in wrong if not case["correct"]]
    assert len(wrong) <= 0.02 * len(CASES), wrong
    assert not false_positives


def test_the_set_has_positives_and_negatives_of_many_kinds() -> None:
    assert min(Counter(case["correct"] for case in CASES).values()) > 100
    assert len({case["kind"] for case in CASES}) > 20


def test_the_cheap_path_agrees_wherever_it_decides() -> None:
    decided = 0
    for case in CASES:
        extracted = final_answer(case["response"])
        cheap = grade_cheaply(extracted, case["answer"]) if extracted is not None else None
        if cheap is not None:
            decided += 1
            assert cheap == grade(case["response"], case["answer"])
    assert decided > len(CASES) / 2


@st.composite
def numbers(draw: st.DrawFn) -> str:
    sign = draw(st.sampled_from(["", "-", "+"]))
    digits = draw(st.integers(0, 10**9))
    whole = f"{digits:,}" if draw(st.booleans()) else str(digits)
    return sign + whole + draw(st.sampled_from(["", ".", ".0", ".5", ".25", ".50"]))


@settings(max_examples=60, deadline=None)
@given(numbers(), numbers())
def test_plain_numbers_never_need_algebra_and_compare_by_value(given_number: str, wanted: str) -> None:
    cheap = grade_cheaply(given_number, wanted)
    assert cheap == grade(rf"\boxed{{{given_number}}}", wanted)
    assert cheap is not None
    assert cheap.correct == (float(given_number.replace(",", "")) == float(wanted.replace(",", "")))


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60), st.text(min_size=1, max_size=20))
def test_any_text_gets_a_cheap_verdict_or_none_and_nothing_raises(response: str, answer: str) -> None:
    for wrapped in (response, rf"\boxed{{{response}}}", f"<answer>{response}</answer>", f"#### {response}"):
        extracted = final_answer(wrapped)
        verdict = grade_cheaply(extracted, answer) if extracted is not None else None
        assert verdict is None or verdict.correct == (verdict.status == "correct")


def test_the_public_function() -> None:
    assert verify(r"so \boxed{72}", "72") == Verdict(True, "correct", "72")
    assert verify(r"so \boxed{71}", "72") == Verdict(False, "wrong", "71")
    assert verify("no idea where to begin with this one", "72") == Verdict(False, "unparsable", None)
    assert verify(r"\boxed{\frac{1}{}}", "72").status == "unparsable"
    assert verify(r"\boxed{(x+1)^2}", "x^2+2x+1").correct


def test_a_verdict_is_true_if_correct_and_no_string() -> None:
    right, wrong = verify(r"\boxed{72}", "72"), verify(r"\boxed{71}", "72")
    assert right
    assert not wrong
    assert len({right, Verdict(True, "correct", "72"), wrong}) == 2
    with pytest.raises(TypeError, match=r"verdict\.status"):
        assert right == "correct"


def test_a_plain_number_takes_microseconds() -> None:
    pairs = [(rf"thus it is \boxed{{{n}}}", str(n + n % 2)) for n in range(1000, 2000)]
    start = time.process_time()
    for response, answer in pairs:
        verify(response, answer)
    assert (time.process_time() - start) / len(pairs) < 300e-6


@pytest.mark.parametrize(
    ("reference", "right", "wrong"),
    [
        ("Answer: 4", "4", "5"),
        ("Two and two are four. The answer is 4.", "4", "2"),
        ("B. 4", "B", "A"),
        ("(B) 4", "4", "B or C"),
        ("B) 4", "(B)", "4.5"),
    ],
)
def test_references_that_announce_or_name_their_answer(reference: str, right: str, wrong: str) -> None:
    """A reference in words met no response: every reward was 0."""
    assert grade(f"\\boxed{{{right}}}", reference).correct
    assert grade(reference, reference).correct
    assert not grade(f"\\boxed{{{wrong}}}", reference).correct
