"""Finding the final answer in a response, and writing an answer so that it is found."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from rlinf.base.thought_marks import OPENING, without_closed_thoughts

AnswerFormat = Literal["tag", "boxed", "####", "plain"]

ANSWER_FORMATS: tuple[AnswerFormat, ...] = ("tag", "boxed", "####", "plain")

_TAG = re.compile(r"<(/?)answer>")
_HASHES = re.compile(r"####[ \t]*(\S[^\n]*)")
_HEADING = re.compile(r"\d+[.)]\s+[A-Za-z]|[^\d$\\]*[A-Za-z]{3}")
"""How a Markdown heading of four levels begins: in words ("Step 2: ..."), or with a number and words ("1. First")."""
_BRACES = re.compile(
    r"(?P<box>\\(?:boxed|fbox|framebox(?:\[[^\]{}\n]{0,20}\]){0,2}|colorbox\{\w{1,20}\}|fcolorbox\{\w{1,20}\}\{\w{1,20}\})\s*\{)"
    r"|\\boxed(?:\s+|(?=\\))(?P<bare>\\[dtc]?frac\s*\{[^{}]{1,200}\}\s*\{[^{}]{1,200}\}|[^\s$\\{}]{1,200})|\\.|[{}]",
    re.DOTALL,
)
_SENTENCE_MARKS = ".,;:!?"
_OPENING = re.compile(OPENING)


def without_thoughts(text: str) -> str:
    """Return ``text`` without the thoughts in it, since an answer cannot stand there.

    Thoughts stand between ``<think>`` and ``</think>`` (or the marks that other models use). If they end and
    never began, the chat template began them: all text before is thoughts. Thoughts that never end take the rest.
    One pass.
    """
    rest = without_closed_thoughts(text)
    opening = _OPENING.search(rest)
    return rest if opening is None else rest[: opening.start()]


def last_boxed(text: str) -> str | None:
    """Return the contents of the last of :func:`boxes`; None if there is none."""
    result = boxes(text)
    return result[-1].content if result else None


@dataclass(frozen=True)
class Box:
    """A box with its contents. ``start`` and ``end``: its position in the text."""

    content: str
    start: int
    end: int


def boxes(text: str) -> list[Box]:
    """Find the complete boxes of ``text`` in the order of their ends: ``\\boxed{...}``, ``\\fbox{...}`` and the like.

    Braces nest; an escaped brace does not count. A box inside another is part of the outer one. A box without
    braces holds the text up to the next blank: ``\\boxed 42`` is 42. One pass over the text.
    """
    if "\\" not in text:
        return []
    results: list[Box] = []
    open_braces: list[re.Match[str] | None] = []  # what opened a box; None for any other brace
    for token in _BRACES.finditer(text):
        if token["box"]:
            open_braces.append(token)
        elif token["bare"] is not None:
            bare = token["bare"].rstrip(_SENTENCE_MARKS)
            if bare:
                results.append(Box(bare, token.start(), token.end()))
        elif token.group() == "{":
            open_braces.append(None)
        elif token.group() == "}" and open_braces:
            opening = open_braces.pop()
            if opening is not None:
                while results and results[-1].start > opening.start():
                    results.pop()
                results.append(Box(text[opening.end() : token.start()], opening.start(), token.end()))
    return results


def last_tag(text: str) -> str | None:
    """Return the contents of the last complete ``<answer>...</answer>``, stripped; None if there is none. One pass."""
    result: str | None = None
    start: int | None = None  # where the content of an open tag starts
    for tag in _TAG.finditer(text):
        if tag.group(1) and start is not None:
            result = text[start : tag.start()]
        start = None if tag.group(1) else tag.end()
    return result.strip() if result is not None else None


def last_hashes(text: str) -> str | None:
    """Return the text behind the last ``####`` on its line; None if there is none.

    A heading does not count: words with more text below them, such as "#### Step 2: add them up".
    """
    last = len(text.rstrip())
    for line in reversed(list(_HASHES.finditer(text))):
        result = line.group(1).strip()
        if line.end() >= last or _HEADING.match(result) is None:
            return result
    return None


def extract(
    response: str, answer_format: AnswerFormat, *, cut: bool = False, several_lines: bool = False
) -> str | None:
    """Extract the final answer of ``response`` in one given format; None if it is missing or blank.

    ``several_lines``: the answer is a grid or a list of lines, so with "####" it goes on to the end.

    ``cut``: the length limit ended the response. An answer then counts only if more text follows that ends it: a
    closed tag or box does, a ``####`` line that is the last one does not (``#### 1`` may be the start of
    ``#### 12``), and with "plain" there is none. Thoughts hold no answer (:func:`without_thoughts`).
    """
    if cut and answer_format == "plain":
        return None
    response = without_thoughts(response)
    if cut and answer_format == "####":
        response = response.rpartition("\n")[0]
    if answer_format == "tag":
        result = last_tag(response)
    elif answer_format == "boxed":
        result = last_boxed(response)
    elif answer_format == "####":
        result = response.rpartition("####")[2] if several_lines and "####" in response else last_hashes(response)
    else:
        result = response
    return (result.strip() or None) if result is not None else None


def render(answer: str, answer_format: AnswerFormat) -> str:
    """``answer`` as :func:`extract` reads it back."""
    if answer_format == "tag":
        return f"<answer>{answer}</answer>"
    if answer_format == "boxed":
        return f"\\boxed{{{answer}}}"
    return f"#### {answer}" if answer_format == "####" else answer
