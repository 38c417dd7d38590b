"""Finding the final answer in a response, and writing an answer so that it is found."""

from __future__ import annotations

import re
from typing import Literal

AnswerFormat = Literal["tag", "boxed", "####", "plain"]

ANSWER_FORMATS: tuple[AnswerFormat, ...] = ("tag", "boxed", "####", "plain")

_TAG = re.compile(r"<(/?)answer>")
_HASHES = re.compile(r"####[ \t]*(\S[^\n]*)")
_BRACES = re.compile(r"(?P<box>\\(?:boxed|fbox)\s*\{)|\\boxed\s+(?P<bare>[0-9A-Za-z])|\\.|[{}]", re.DOTALL)


def last_boxed(text: str) -> str | None:
    """The contents of the last complete ``\\boxed{...}`` or ``\\fbox{...}``; None where there is none.

    Braces nest; an escaped brace does not count. A box inside another is part of the outer one. One pass over the text.
    """
    found: str | None = None
    open_braces: list[int | None] = []  # where the content of a box starts; None for any other brace
    for token in _BRACES.finditer(text):
        if token["box"]:
            open_braces.append(token.end())
        elif token["bare"]:
            found = token["bare"]
        elif token.group() == "{":
            open_braces.append(None)
        elif token.group() == "}" and open_braces:
            start = open_braces.pop()
            if start is not None:
                found = text[start : token.start()]
    return found


def last_tag(text: str) -> str | None:
    """The contents of the last complete ``<answer>...</answer>``, stripped; None where there is none. One pass."""
    found: str | None = None
    start: int | None = None  # where the content of an open tag starts
    for tag in _TAG.finditer(text):
        if tag.group(1) and start is not None:
            found = text[start : tag.start()]
        start = None if tag.group(1) else tag.end()
    return found.strip() if found is not None else None


def last_hashes(text: str) -> str | None:
    """The text behind the last ``####`` on its line; None where there is none."""
    found = _HASHES.findall(text)
    return found[-1].strip() if found else None


def extract(response: str, answer_format: AnswerFormat, *, cut: bool = False) -> str | None:
    """The final answer of ``response`` in one given format; None where it is not there or blank.

    ``cut``: the length limit ended the response. An answer then counts only where more text follows that ends it: a
    closed tag or box does, a ``####`` line that is the last one does not (``#### 1`` may be the start of ``#### 12``),
    and with "plain" there is none.
    """
    if cut and answer_format == "plain":
        return None
    if cut and answer_format == "####":
        response = response.rpartition("\n")[0]
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
