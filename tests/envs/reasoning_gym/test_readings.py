"""Answers without what changes only their appearance."""

import pytest
from rlinf_envs.reasoning_gym.readings import readings


@pytest.mark.parametrize(
    ("written", "reference"),
    [
        ("12.", "12"),
        ("$12$", "12"),
        ("\\(12\\)", "12"),
        ("\\text{12}", "12"),
        ("**12**", "12"),
        ("x = 12", "12"),
        ("$x = 12$.", "12"),
        ("The answer is 12.", "12"),
        ("Answer: 12", "12"),
        ("12.0", "12"),
        ("1,234,567", "1234567"),
        ("1{,}234", "1234"),
        ("−12", "-12"),
        ("\\frac{3}{8}", "3/8"),
        ("$\\dfrac{3}{8}$", "3/8"),
        ("2 \\times 3 \\times 3", "2 × 3 × 3"),
        ("2*3*3", "2 × 3 × 3"),
        ("2x3x3", "2 × 3 × 3"),
        ("3 \\times 4 + 2", "3*4 + 2"),
        ("3x^2", "3x**2"),
        ("yes", "Yes"),
        ("YES.", "Yes"),
        ("false", "False"),
        ("On", "on"),
        ("[1,2,3]", "[1, 2, 3]"),
        ('["1.5", "2"]', "['1.5', '2']"),
        ("`hello`", "hello"),
        ('"hello"', "hello"),
        ("```\nhello\n```", "hello"),
        ("```text\n1 2\n3 4\n```", "1 2\n3 4"),
        ("1 2 \n3 4 ", "1 2\n3 4"),
        ("Answer:\n1 2\n3 4", "1 2\n3 4"),
        ("You have tried it.", "You have tried it."),
        ("**You have tried it.**", "You have tried it."),
        ("Answer: You have tried it.", "You have tried it."),
        ("\\text{You have tried it.}", "You have tried it."),
        ("A=1,B=2.", "A=1,B=2"),
        ("#B A#.", "#B A#"),
    ],
)
def test_what_changes_only_the_appearance_is_left_out(written: str, reference: str) -> None:
    assert reference in readings(written, reference)


@pytest.mark.parametrize(
    ("written", "reference"),
    [
        ("13", "12"),
        ("-12", "12"),
        ("12.5", "12"),
        ("1,23", "123"),
        ("not 12", "12"),
        ("12 or 13", "12"),
        ("abba", "ABBA"),
        ("No", "Yes"),
        ("[1, 2]", "[2, 1]"),
        ("1 2", "1 2\n3 4"),
        ("2 × 9", "2 × 3 × 3"),
        ("x = y = 12", "12"),
    ],
)
def test_what_changes_the_answer_is_kept(written: str, reference: str) -> None:
    assert reference not in readings(written, reference)


def test_the_first_reading_is_what_was_written_and_bare_answers_have_no_other() -> None:
    assert readings("12", "12") == ["12"]
    assert readings("banana", "12") == ["banana"]
    assert readings("x = 12", "7")[0] == "x = 12"
