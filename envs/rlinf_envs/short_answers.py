"""Answers to questions with one right number or word, as policies write them: "12.", "It costs 12.", "**rows**"."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlinf_envs.extraction import without_thoughts
from rlinf_envs.math.final_answer import announced_answer, enclosed, final_answer, marked_answer
from rlinf_envs.math.grading import grade_cheaply
from rlinf_envs.math.prose import denied


def number_in(response: str) -> str:
    """Return the number that ``response`` gives as its answer, as it is written; an empty text if it gives none.

    >>> number_in("<think>3 * 4</think>The area is 12."), number_in("twelve"), number_in("")
    ('12', '12', '')
    """
    answer = final_answer(response)
    return "" if answer is None else enclosed(answer) or ""


def is_number(answer: str, number: int) -> bool:
    """Return whether ``answer`` has the value ``number``: "12", "$12", "12.0", "12 cm".

    >>> is_number("12 cm", 12), is_number("12 or 13", 12)
    (True, False)
    """
    verdict = grade_cheaply(answer, str(number))
    return verdict is not None and verdict.correct


def option_in(response: str, options: Sequence[str]) -> str:
    """Return the one of ``options`` that the conclusion of ``response`` names; an empty text for none or several.

    >>> option_in("The box has rows, not columns.", ["rows", "columns"])
    'rows'
    >>> option_in("rows or columns", ["rows", "columns"])
    ''
    """
    text = without_thoughts(response)
    lines = [line for line in text.splitlines() if any(map(str.isalnum, line))]
    conclusion = marked_answer(text) or announced_answer(text) or (lines[-1] if lines else "")
    named = {
        option
        for option in options
        for result in re.finditer(rf"(?<!\w){re.escape(option)}(?!\w)", conclusion, re.IGNORECASE)
        if not denied(conclusion, *result.span())
    }
    return named.pop() if len(named) == 1 else ""
