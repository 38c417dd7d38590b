"""``exact`` and ``choice``: the answer as text, and as one of several letters."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlinf_envs.errors import SettingError
from rlinf_envs.extraction import last_boxed, last_hashes, last_tag, without_thoughts
from rlinf_envs.math.prose import denied
from rlinf_envs.suggest import unknown

if TYPE_CHECKING:
    from rlinf.interfaces import RewardTerm

_COMPARED = ("equal", "contains", "f1")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_LETTER = r"\(?\b([A-Z])\b\)?"
_CHOICES = (
    re.compile(rf"(?i:answer|choice|option)(?i:\s+(?:is|:))*\s*:?\s*\**{_LETTER}"),
    re.compile(rf"^\W*{_LETTER}\W*$", re.MULTILINE),
)


@dataclass(frozen=True)
class Answering:
    """A reward term that compares an answer, and reports which one it found."""

    term: RewardTerm
    answer_in: Callable[[str], str | None]
    """The answer in a response; None if there is none."""

    def __call__(self, *, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
        """Return the term's value."""
        return self.term(prompt=prompt, response=response, answer=answer, row=row)


def final(response: str) -> str:
    """Return the text in the last <answer> tag, box or behind ####; if there is none, all that follows the thoughts."""
    response = without_thoughts(response)
    for find in (last_tag, last_boxed, last_hashes):
        result = find(response)
        if result is not None:
            return result
    return response


def normalized(text: str) -> str:
    """Lower case, without punctuation, articles and superfluous white space (as SQuAD compares)."""
    bare = "".join(char for char in text.lower() if char not in string.punctuation)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def exact(*, compare: str = "equal", normalize: bool = True, field: str | None = None) -> RewardTerm:
    """Compare the final answer with the reference, or with the nearest of several (a list in the row).

    Args:
        compare: "equal"; "contains": the reference occurs in the whole response; "f1": the overlap of words, 0 to
            1.
        normalize: leave case, punctuation and articles out of account.
        field: where in the row the reference stands, instead of the task's answer.
    """
    if compare not in _COMPARED:
        raise SettingError(f"reward.exact.compare: {unknown('comparison', compare, _COMPARED)}")
    put = normalized if normalize else str.strip

    def score(response: str, requested: str) -> float:
        candidate, reference = put(response if compare == "contains" else final(response)), put(requested)
        if compare == "equal":
            return float(candidate == reference)
        if compare == "contains":
            return float(bool(reference) and reference in candidate)
        return _f1(candidate.split(), reference.split())

    def term(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
        requested = answer if field is None else row_value("exact", field, row)
        references = requested if isinstance(requested, (list, tuple)) else [requested]
        return max((score(response, str(each)) for each in references), default=0.0)

    return Answering(term, lambda response: put(final(response)) or None) if compare == "equal" else term


def _f1(given: list[str], requested: list[str]) -> float:
    if not given or not requested:
        return float(given == requested)
    common = sum((Counter(given) & Counter(requested)).values())
    return 2.0 * common / (len(given) + len(requested))


def choice(*, choices: str = "ABCD") -> RewardTerm:
    """Return 1 if the last letter given as the answer is the reference's; ``choices``: the letters there are.

    It is found in a tag or box, behind "answer is", or alone on a line. Two letters in one tag are no answer.
    """
    if len(choices) < 2 or not all(letter in string.ascii_uppercase for letter in choices):
        raise SettingError(f"reward.choice.choices must be capital letters such as ABCD, got {choices!r}")

    def term(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
        requested = _chosen(answer, choices) or answer.strip().upper()
        return float(_chosen(response, choices) == requested)

    return Answering(term, lambda response: _chosen(response, choices))


def _chosen(response: str, choices: str) -> str | None:
    response = without_thoughts(response)
    candidate = final(response)
    if candidate != response or len(candidate.strip()) <= len("(A)."):
        letters = set(re.findall(r"\b[A-Z]\b", candidate.strip().upper())) & set(choices)
        return letters.pop() if len(letters) == 1 else None
    for pattern in _CHOICES:
        results = [match for match in pattern.finditer(response) if match[1] in choices]
        results = [match for match in results if not denied(response, *match.span(1))]
        if results:
            return str(results[-1][1])
    return None


def row_value(term: str, field: str, row: Mapping[str, Any]) -> Any:
    """``row[field]``; a SettingError names the fields that there are."""
    if field not in row:
        raise SettingError(f"reward.{term}: {unknown('field of the row', field, map(str, row))}")
    return row[field]
