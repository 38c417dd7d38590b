"""``constraints``: instructions whose keeping can be counted (after IFEval, arXiv:2311.07911).

A constraint is a name with its value, in the settings or in a field of the row: ``{max_words: 80, keywords: [sun]}``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rlinf_envs.errors import SettingError
from rlinf_envs.extraction import without_thoughts
from rlinf_envs.reward_terms.answering import RowReading, row_value
from rlinf_envs.reward_terms.constraint_rows import are_published, contents, published
from rlinf_envs.reward_terms.text_counts import bullets, occurrences, paragraphs, sentences, words
from rlinf_envs.reward_terms.text_forms import (
    ends_with,
    has_comma,
    has_postscript,
    has_title,
    is_json,
    is_quoted,
    placeholders,
)
from rlinf_envs.suggest import unknown

if TYPE_CHECKING:
    from rlinf.interfaces import RewardTerm

Check = Callable[[str], bool]


def _frequency(text: str, requested: Mapping[str, int]) -> bool:
    return all(occurrences(text, word) >= count for word, count in requested.items())


CONSTRAINTS: Mapping[str, tuple[type | tuple[type, ...], Callable[[str, Any], bool]]] = {
    "max_words": (int, lambda text, most: words(text) <= most),
    "min_words": (int, lambda text, least: words(text) >= least),
    "max_sentences": (int, lambda text, most: sentences(text) <= most),
    "min_sentences": (int, lambda text, least: sentences(text) >= least),
    "paragraphs": (int, lambda text, count: len(paragraphs(text)) == count),
    "bullets": (int, lambda text, count: bullets(text) == count),
    "keywords": (list, lambda text, words: all(occurrences(text, str(word)) for word in words)),
    "forbidden": (list, lambda text, words: not any(occurrences(text, str(word)) for word in words)),
    "frequency": (dict, _frequency),
    "starts_with": (str, lambda text, start: text.strip().startswith(start)),
    "ends_with": (str, lambda text, end: ends_with(text, end)),
    "lowercase": (bool, lambda text, required: (text == text.lower()) is required),
    "uppercase": (bool, lambda text, required: (text == text.upper()) is required),
    "no_commas": (bool, lambda text, required: (not has_comma(text)) is required),
    "json": (bool, lambda text, required: is_json(text) is required),
    "title": (bool, lambda text, required: has_title(text) is required),
    "placeholders": (int, lambda text, least: placeholders(text) >= least),
    "postscript": (str, lambda text, marker: has_postscript(text, marker)),
    "quoted": (bool, lambda text, required: is_quoted(text) is required),
}
"""Name -> (type of its value, whether a text keeps it)."""


def constraints(
    *, require: Mapping[str, Any] | None = None, field: str | None = None, all_or_nothing: bool = False
) -> RewardTerm:
    """Return the share of constraints that the response keeps, without its thoughts. A blank one keeps none.

    Args:
        require: the same constraints for every response.
        field: where in the row further ones stand: a mapping, or the instructions of IFEval, RLVR-IFeval or IF-RLVR
            (:mod:`~rlinf_envs.reward_terms.constraint_rows`).
        all_or_nothing: 1 if all are kept, else 0.
    """
    general = _checked("reward.constraints.require", require or {})
    if not general and field is None:
        raise SettingError("reward.constraints needs require (for all responses), field (of the row), or both")

    def term(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
        own = [] if field is None else _checks_of(field, row)
        text = without_thoughts(response)
        kept = [bool(text.strip()) and check(text) for check in (*general, *own)]
        if not kept:
            return 1.0
        return float(all(kept)) if all_or_nothing else sum(kept) / len(kept)

    return term if field is None else RowReading(term, lambda row: _checks_of(field, row))


def _checks_of(field: str, row: Mapping[str, Any]) -> list[Check]:
    value = contents(row_value("constraints", field, row))
    if are_published(value):
        return published(value, row)
    # The rows of a table have each other's keys too, as nulls.
    kept = {name: each for name, each in value.items() if each is not None} if isinstance(value, Mapping) else value
    return _checked(f"field {field} of a row", kept)


def _checked(where: str, given: Any) -> list[Check]:
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
    return [functools.partial(_keeps, name, value) for name, value in given.items()]


def _keeps(name: str, value: Any, text: str) -> bool:
    return CONSTRAINTS[name][1](text, value)
