"""``constraints``: instructions whose keeping can be counted (after IFEval, arXiv:2311.07911).

A constraint is a name with its value, in the settings or in a field of the row: ``{max_words: 80, keywords: [sun]}``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rlinf.base.json_text import parse_json
from rlinf_envs.errors import SettingError
from rlinf_envs.extraction import without_thoughts
from rlinf_envs.reward_terms.answering import row_value
from rlinf_envs.suggest import unknown

if TYPE_CHECKING:
    from rlinf.interfaces import RewardTerm

_WORD = re.compile(r"\b[\w'-]+\b")
_SENTENCE = re.compile(r"[.!?]+(?=\s|$)")
_BULLET = re.compile(r"^\s*[-*•]\s+\S", re.MULTILINE)
_FENCE = re.compile(r"\A```(?:json)?\s*\n(.*)\n```\Z", re.DOTALL)


def _words(text: str) -> int:
    return len(_WORD.findall(text))


def _paragraphs(text: str) -> int:
    return sum(bool(part.strip()) for part in re.split(r"\n\s*\n", text))


def _occurs(text: str, word: str) -> int:
    return len(re.findall(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE))


def _json(text: str) -> bool:
    fenced = _FENCE.match(text.strip())
    try:
        parse_json(fenced.group(1) if fenced else text)
    except ValueError:
        return False
    return True


def _frequency(text: str, requested: Mapping[str, int]) -> bool:
    return all(_occurs(text, word) >= count for word, count in requested.items())


CONSTRAINTS: Mapping[str, tuple[type | tuple[type, ...], Callable[[str, Any], bool]]] = {
    "max_words": (int, lambda text, most: _words(text) <= most),
    "min_words": (int, lambda text, least: _words(text) >= least),
    "max_sentences": (int, lambda text, most: len(_SENTENCE.findall(text)) <= most),
    "min_sentences": (int, lambda text, least: len(_SENTENCE.findall(text)) >= least),
    "paragraphs": (int, lambda text, count: _paragraphs(text) == count),
    "bullets": (int, lambda text, count: len(_BULLET.findall(text)) == count),
    "keywords": (list, lambda text, words: all(_occurs(text, str(word)) for word in words)),
    "forbidden": (list, lambda text, words: not any(_occurs(text, str(word)) for word in words)),
    "frequency": (dict, _frequency),
    "starts_with": (str, lambda text, start: text.strip().startswith(start)),
    "ends_with": (str, lambda text, end: text.strip().endswith(end)),
    "lowercase": (bool, lambda text, required: (text == text.lower()) is required),
    "uppercase": (bool, lambda text, required: (text == text.upper()) is required),
    "no_commas": (bool, lambda text, required: ("," not in text) is required),
    "json": (bool, lambda text, required: _json(text) is required),
    "title": (bool, lambda text, required: bool(re.search(r"<<[^\n]+>>", text)) is required),
    "placeholders": (int, lambda text, least: len(re.findall(r"\[[^\[\]\n]+\]", text)) >= least),
    "postscript": (str, lambda text, marker: bool(re.search(rf"^\s*{re.escape(marker)}", text, re.MULTILINE))),
    "quoted": (bool, lambda text, required: bool(re.fullmatch(r'"[^"]*"', text.strip())) is required),
}
"""Name -> (type of its value, whether a text keeps it)."""


def constraints(
    *, require: Mapping[str, Any] | None = None, field: str | None = None, all_or_nothing: bool = False
) -> RewardTerm:
    """Return the share of constraints that the response keeps, without its thoughts. A blank one keeps none.

    Args:
        require: the same constraints for every response.
        field: where in the row further ones stand, as a mapping.
        all_or_nothing: 1 if all are kept, else 0.
    """
    general = _checked("reward.constraints.require", require or {})
    if not general and field is None:
        raise SettingError("reward.constraints needs require (for all responses), field (of the row), or both")

    def term(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
        own = {} if field is None else _checked(f"field {field} of a row", row_value("constraints", field, row))
        requested = {**general, **own}
        text = without_thoughts(response)
        kept = [bool(text.strip()) and CONSTRAINTS[name][1](text, value) for name, value in requested.items()]
        if not kept:
            return 1.0
        return float(all(kept)) if all_or_nothing else sum(kept) / len(kept)

    return term


def _checked(where: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise SettingError(f"{where} must map constraints to their values, got {given!r:.80}")
    for name, value in given.items():
        if name not in CONSTRAINTS:
            raise SettingError(f"{where}: {unknown('constraint', str(name), CONSTRAINTS)}")
        requested = CONSTRAINTS[name][0]
        # A bool is an int to Python, and a mistake here.
        if not isinstance(value, requested) or (requested is int and isinstance(value, bool)):
            kind = (
                requested.__name__ if isinstance(requested, type) else " or ".join(each.__name__ for each in requested)
            )
            raise SettingError(f"{where}: {name} takes a value of type {kind}, got {value!r:.80}")
    return dict(given)
