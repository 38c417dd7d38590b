"""Finding the final answer in a response, and writing an answer so that it is found."""

from __future__ import annotations

import re
from typing import Literal

AnswerFormat = Literal["tag", "boxed", "####", "plain"]

ANSWER_FORMATS: tuple[AnswerFormat, ...] = ("tag", "boxed", "####", "plain")

_TAG = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.DOTALL)
_HASHES = re.compile(r"####[ \t]*(\S[^\n]*)")
_BOX = re.compile(r"\\f?boxed\s*(\{|[0-9A-Za-z])")


def last_boxed(text: str) -> str | None:
    """What the last complete ``\\boxed{...}`` or ``\\fbox{...}`` contains; None where there is none.

    Braces nest; an escaped brace does not count. A box inside another is part of the outer one.
    """
    found: str | None = None
    position = 0
    while (opening := _BOX.search(text, position)) is not None:
        if opening.group(1) != "{":
            found, position = opening.group(1), opening.end()
            continue
        end = closing_brace(text, opening.end())
        if end is None:
            position = opening.end()
            continue
        found, position = text[opening.end() : end], end + 1
    return found


def closing_brace(text: str, start: int) -> int | None:
    """The index of the brace that closes the one opened just before ``start``."""
    depth, index = 1, start
    while index < len(text):
        char = text[index]
        if char == "\\":
            index += 2
            continue
        if char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                return index
        index += 1
    return None


def last_tag(text: str) -> str | None:
    """What the last complete ``<answer>...</answer>`` contains, stripped; None where there is none."""
    found = _TAG.findall(text)
    return found[-1].strip() if found else None


def last_hashes(text: str) -> str | None:
    """What follows the last ``####`` on its line; None where there is none."""
    found = _HASHES.findall(text)
    return found[-1].strip() if found else None


def extract(response: str, answer_format: AnswerFormat) -> str | None:
    """The final answer of ``response`` in one given format; None where it is not there or blank."""
    if answer_format == "tag":
        found = last_tag(response)
    elif answer_format == "boxed":
        found = last_boxed(response)
    elif answer_format == "####":
        found = last_hashes(response)
    else:
        found = response
    return (found.strip() or None) if found is not None else None


def render(answer: str, answer_format: AnswerFormat) -> str:
    """``answer`` as :func:`extract` reads it back."""
    if answer_format == "tag":
        return f"<answer>{answer}</answer>"
    if answer_format == "boxed":
        return f"\\boxed{{{answer}}}"
    return f"#### {answer}" if answer_format == "####" else answer
