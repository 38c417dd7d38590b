"""``exact``: the answer as text."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlinf_envs.errors import SettingError
from rlinf_envs.extraction import last_boxed, last_hashes, last_tag, without_thoughts
from rlinf_envs.reward_terms.answering import Answering, row_value
from rlinf_envs.suggest import unknown

if TYPE_CHECKING:
    from rlinf.interfaces import RewardTerm

_NO_BLANKS = "\u2e80"
"""Where Unicode's Chinese, Japanese and Korean characters begin."""
_COMPARED = ("equal", "contains", "f1")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_POSSESSIVE = re.compile(r"(?<=\w)['’]s\b")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_MEANT = re.compile(r"(?<=\d)[-.,/:^](?=\d)|(?<!\w)[-−]?\.?(?=\d)|(?<=\w)[+*^=<>#]+|[+*^=<>](?=\w)|(?<=\d)/|/(?=\d)")
"""Signs that make another answer: "3.5" and "35", "-5" and "5", "1/2" and "12", "C++" and "C"."""


def final(response: str) -> str:
    """Return the text in the last <answer> tag, box or behind ####; if there is none, all that follows the thoughts."""
    response = without_thoughts(response)
    for find in (last_tag, last_boxed, last_hashes):
        result = find(response)
        if result is not None:
            return result
    return response


def _punctuation(char: str) -> bool:
    return char in string.punctuation or unicodedata.category(char).startswith("P")


def normalized(text: str) -> str:
    """Lower case, without punctuation, articles and superfluous white space (as SQuAD compares).

    Signs of numbers and names stay ("-3.5", "1/2", "C++"), and so does an article that is all there is.
    """
    whole = _THOUSANDS.sub("", text.lower())
    meant = {index for result in _MEANT.finditer(whole) for index in range(*result.span())}
    bare = "".join(char for i, char in enumerate(whole) if not _punctuation(char) or i in meant)
    return " ".join(_ARTICLES.sub(" ", bare).split()) or " ".join(bare.split()) or whole.strip()


def exact(*, compare: str = "equal", normalize: bool = True, field: str | None = None) -> RewardTerm:
    """Compare the final answer with the reference, or with the nearest of several (a list in the row).

    Args:
        compare: "equal"; "contains": the reference occurs in the whole response, as whole words; "f1": the overlap
            of words, 0 to 1.
        normalize: leave case, punctuation and articles out of account.
        field: where in the row the reference stands, instead of the task's answer.
    """
    if compare not in _COMPARED:
        raise SettingError(f"reward.exact.compare: {unknown('comparison', compare, _COMPARED)}")
    put = normalized if normalize else str.strip

    def score(response: str, requested: str) -> float:
        if compare == "contains":
            texts = (_POSSESSIVE.sub("", text) if normalize else text for text in (response, requested))
            return float(_contains(*map(put, texts)))
        candidate, reference = put(final(response)), put(requested)
        if compare == "equal":
            return float(candidate == reference)
        return _f1(candidate.split(), reference.split())

    def term(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
        requested = answer if field is None else row_value("exact", field, row)
        references = requested if isinstance(requested, (list, tuple)) else [requested]
        return max((score(response, str(each)) for each in references), default=0.0)

    return Answering(term, lambda response: put(final(response)) or None) if compare == "equal" else term


def _contains(candidate: str, reference: str) -> bool:
    """Whether ``reference`` occurs in ``candidate`` and no word or number goes on at its ends."""
    start = candidate.find(reference) if reference else -1
    while start >= 0:
        end = start + len(reference)
        before, after = candidate[max(start - 1, 0) : start], candidate[end : end + 2]
        longer_word = _goes_on(before, reference[0]) or _goes_on(after[:1], reference[-1])
        if not longer_word and not _longer_number(before, after, reference):
            return True
        start = candidate.find(reference, start + 1)
    return False


def _goes_on(neighbour: str, end: str) -> bool:
    """Whether two characters are of one word; scripts without blanks between words have no such ends."""
    return neighbour.isalnum() and end.isalnum() and max(neighbour, end) < _NO_BLANKS


def _longer_number(before: str, after: str, reference: str) -> bool:
    """Whether a number in ``reference`` is part of a longer one: 5 in 3.5, in -5 and in 5/6."""
    starts_before = reference[0].isdigit() and re.search(r"[-−.,/:^]$", before)
    ends_behind = reference[-1].isdigit() and re.match(r"[.,/:^]\d", after)
    return bool(starts_before or ends_behind)


def _f1(given: list[str], requested: list[str]) -> float:
    if not given or not requested:
        return float(given == requested)
    common = sum((Counter(given) & Counter(requested)).values())
    return 2.0 * common / (len(given) + len(requested))
