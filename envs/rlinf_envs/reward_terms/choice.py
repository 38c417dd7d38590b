"""``choice``: the answer is one of several letters."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlinf_envs.errors import SettingError
from rlinf_envs.extraction import without_thoughts
from rlinf_envs.math.dress import undressed
from rlinf_envs.math.final_answer import announced_answer, marked_answer
from rlinf_envs.math.prose import denied, last_line
from rlinf_envs.reward_terms.answering import Answering

if TYPE_CHECKING:
    from rlinf.interfaces import RewardTerm

_WRAPPERS = re.compile(r"[*_`\"“”'$]|\\[()\[\]]")
_ALONE = re.compile(r"^[^\w\n]*([A-Za-z])[^\w\n]*$", re.MULTILINE)
_NAMED = re.compile(r"\b(?i:option|choice)\s+\(?([A-Z])\b")
_LEADING = re.compile(
    r"[^\w(]*(?:(?:option|choice|letter|answer)\b\W*)?\(?([A-Za-z])(?:\)|(?=\s*[.:,;\]]|\s*$|\s+[-–—]\s))",
    re.IGNORECASE,
)
"""A letter at the start with a mark behind it: "(B) Paris", "option b", "B. Paris", "B: Paris"."""
_NEXT = re.compile(
    r"[\s).]*(?:,|/|&|\b(?:and|or)\b)\s*(?:and\b|or\b)?\s*\(?([A-Za-z])\)?(?!\w)(?!\s+[a-z])", re.IGNORECASE
)
"""A second letter of a list: "A, B", "A or B"."""
_MARKED = re.compile(r"\(([A-Z])\)|(?<!\w)([A-Z])[).:](?=\s)")
_LETTER = re.compile(
    r"(?<![\w'’.])(?:A(?!\s+(?!(?:or|and|is|was|but|nor)\b)[a-z]{2})|[B-HJ-Z]|I(?!\s+[a-z]{2}|['’]))(?![\w'’])"
)
"""A capital letter alone, which is neither the article nor the pronoun."""
_EXCLUDED = re.compile(
    r"\b(?:not|never|rather than|instead of)\s+(?:option\s+|choice\s+)?\(?[A-Za-z]\b\)?", re.IGNORECASE
)


def choice(*, choices: str = "ABCD") -> RewardTerm:
    """Return 1 if the letter given as the answer is the reference's; ``choices``: the letters there are.

    It stands in a tag or box, behind "####" or "the answer is", alone on a line, or in the last line. Two letters are
    no answer.
    """
    if len(choices) < 2 or not all(letter in string.ascii_uppercase for letter in choices):
        raise SettingError(f"reward.choice.choices must be capital letters such as ABCD, got {choices!r}")

    def term(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
        requested = _given(answer, choices) or answer.strip().upper()
        return float(chosen(response, choices) == requested)

    return Answering(term, lambda response: chosen(response, choices))


def chosen(response: str, choices: str) -> str | None:
    """Return the letter that ``response`` gives as its answer; None if it gives none, or several."""
    text = without_thoughts(response)
    marked = marked_answer(text)
    if marked is not None:
        return _given(marked, choices)
    announcement = announced_answer(text)
    if announcement is not None:
        letter = _given(announcement, choices)
        if letter is not None or not announcement or _letters(announcement, choices):
            return letter
    conclusion = last_line(text)
    for pattern in (_ALONE,) if conclusion else (_ALONE, _NAMED):
        for result in reversed(list(pattern.finditer(text))):
            if result[1] in choices and not denied(text, *result.span(1)):
                return result[1]
    return _given(conclusion or "", choices)


def _given(content: str, choices: str) -> str | None:
    """Return the one letter in the text of an answer: "B", "(b) Paris", "Option B"."""
    text = _EXCLUDED.sub(" ", _WRAPPERS.sub("", undressed(content))).strip()
    leading = _LEADING.match(text)
    if leading is None:
        letters = _letters(text, choices)
        return letters.pop() if len(letters) == 1 else None
    letter, rest = leading[1].upper(), text[leading.end() :]
    others = {one for marks in _MARKED.findall(rest) for one in marks if one} & set(choices) - {letter}
    following = _NEXT.match(rest)
    if others or (following is not None and following[1].upper() in choices):
        return None
    return letter if letter in choices else None


def _letters(text: str, choices: str) -> set[str]:
    letters = {result.group() for result in _LETTER.finditer(text) if not denied(text, *result.span())}
    return letters & set(choices)
