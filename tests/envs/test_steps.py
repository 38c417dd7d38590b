"""Exact arithmetic and the rule-based step checker."""

import contextlib
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlinf_envs.arithmetic import ArithmeticFault, evaluate
from rlinf_envs.steps import ArithmeticScorer, StepGrader, split_steps
from rlinf_envs.tasks import Judgement, Task


@pytest.mark.parametrize(
    ("text", "value"),
    [("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("1,200 / 5", 240), ("2 ^ 3 ^ 2", 512), ("-2 ** 2", -4), ("0.1 + 0.2",
     Fraction(3, 10)), ("7 ÷ 2", Fraction(7, 2)), ("3 × −4", -12), ("2 ^ -1", Fraction(1, 2)), ("--3", 3)],
)  # fmt: skip
def test_values(text: str, value: Fraction | int) -> None:
    assert evaluate(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 +",
        "1 / 0",
        "0 ^ -1",
        "(1",
        "1 2",
        "x",
        "9 ^ 9 ^ 9 ^ 9",
        "(" * 300,
        "2 ^ 0.5",
        "9" * 500,
        "__import__('os')",
    ],
)
def test_faults(text: str) -> None:
    with pytest.raises(ArithmeticFault):
        evaluate(text)


@given(st.text(alphabet="0123456789+-*/^(). ", max_size=60))
def test_any_text_is_a_value_or_a_fault(text: str) -> None:
    with contextlib.suppress(ArithmeticFault):
        assert isinstance(evaluate(text), Fraction)


def test_steps_end_behind_their_last_character() -> None:
    response = "  one \n\n two\nthree  "
    steps = split_steps(response)
    assert [step.text for step in steps] == ["one", "two", "three"]
    assert [response[: step.end].split()[-1] for step in steps] == ["one", "two", "three"]
    assert [step.text for step in split_steps("a; b", ";")] == ["a", "b"]


def test_the_last_step_takes_the_final_verdict() -> None:
    scorer = ArithmeticScorer(right=1.0, wrong=-1.0)
    scores = scorer.score(question="", steps=["1 + 1 = 2", "hm", "answer 3"], answer="2", correct=False)
    assert scores[0] == 1.0
    assert math.isnan(scores[1])
    assert scores[2] == -1.0
    assert scorer.score(question="", steps=["1 + 1 = 3"], answer="3", correct=True) == [-1.0]


class Lengths:
    def score(self, *, question: str, steps: list[str], answer: str, correct: bool) -> list[float]:
        return [float(len(step)) for step in steps]


def test_a_learned_scorer_fits_in() -> None:
    grader = StepGrader({"scorer": Lengths(), "delimiter": "\n\n"})
    ends, scores = grader.grade(["ab\n\nabc"], [Task("q", "a", "d")], [Judgement("wrong", 0.0, None)])
    assert (ends, scores) == ([[2, 7]], [[2.0, 3.0]])


class Threshold:
    """A scorer with an option, as a YAML names it."""

    def __init__(self, longest: int = 3) -> None:
        self.longest = longest

    def score(self, *, question: str, steps: list[str], answer: str, correct: bool) -> list[float]:
        return [float(len(step) <= self.longest) for step in steps]


def verdict_everywhere(*, question: str, steps: list[str], answer: str, correct: bool) -> list[float]:
    return [float(correct)] * len(steps)


READY = Threshold(longest=1)


@pytest.mark.parametrize(
    ("settings", "scores"),
    [
        ({"scorer": f"{__name__}:Threshold"}, [1.0, 0.0]),
        ({"scorer": f"{__name__}:Threshold", "options": {"longest": 9}}, [1.0, 1.0]),
        ({"scorer": f"{__name__}:verdict_everywhere"}, [0.0, 0.0]),
        ({"scorer": f"{__name__}:READY"}, [0.0, 0.0]),
    ],
)
def test_a_scorer_by_name(settings: dict[str, object], scores: list[float]) -> None:
    grader = StepGrader(settings)
    found = grader.grade(["abc\nabcd"], [Task("q", "a", "d")], [Judgement("wrong", 0.0, None)])
    assert found == ([[3, 8]], [scores])


@pytest.mark.parametrize("response", ["", "  \n "])
def test_an_empty_response_is_a_wrong_step(response: str) -> None:
    found = StepGrader({}).grade([response], [Task("q", "a", "d")], [Judgement("unparsable", 0.0, None)])
    assert found == ([[len(response)]], [[0.0]])


def endless(*, question: str, steps: list[str], answer: str, correct: bool) -> list[float]:
    return [math.inf] * len(steps)


def test_an_infinite_score_is_an_error() -> None:
    with pytest.raises(ValueError, match="infinite"):
        StepGrader({"scorer": f"{__name__}:endless"}).grade(
            ["a"], [Task("q", "a", "d")], [Judgement("wrong", 0.0, None)]
        )


def without_answer(question: str, steps: list[str]) -> list[float]:
    return [0.0] * len(steps)


class Scorer:
    def __init__(self, path: str) -> None:
        self.path = path

    def score(self, question: str, steps: list[str]) -> list[float]:
        return [0.0] * len(steps)


@pytest.mark.parametrize(
    ("config", "output"),
    [
        ({"scorer": "arithmetik"}, "did you mean"),
        ({"delimiter": ""}, "must not be empty"),
        ({"delimeter": "x"}, "did you mean"),
        ({"scorer": "no_such_module:Scorer"}, "cannot be imported"),
        ({"scorer": f"{__name__}:Missing"}, "cannot be imported"),
        ({"scorer": "math:pi"}, "math:pi is a float, and must be a function that is called with question="),
        ({"scorer": f"{__name__}:without_answer"}, "without_answer has no parameter answer and correct, and is called"),
        ({"scorer": f"{__name__}:Scorer", "options": {"pth": 1}}, r"requires path \(did you mean pth\?\)"),
        ({"scorer": f"{__name__}:Scorer", "options": {"path": "x"}}, r"Scorer\.score takes no positional|has no param"),
        ({"scorer": f"{__name__}:endless", "options": {"a": 1}}, "for a scorer that is a class"),
        ({"scorer": f"{__name__}:endless", "right": 2.0}, "steps.right is not read"),
        ({"options": {"a": 1}}, "steps.options is not read"),
    ],
)
def test_wrong_settings(config: dict[str, object], output: str) -> None:
    with pytest.raises(ValueError, match=output):
        StepGrader(config)
