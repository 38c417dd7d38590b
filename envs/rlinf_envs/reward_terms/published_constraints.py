"""The verifiable instructions of IFEval (Zhou et al. 2023, arXiv:2311.07911), by their published names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from rlinf.base.plain_text import folded
from rlinf_envs.errors import SettingError
from rlinf_envs.reward_terms import text_counts, text_forms
from rlinf_envs.reward_terms.language_detection import SCRIPTS, is_in_language
from rlinf_envs.suggest import unknown

Check = Callable[[str], bool]
"""Whether a text keeps an instruction."""

_HIGHLIGHT = re.compile(r"\*\*(?!\s)[^*\n]+\*\*|\*(?!\s)[^*\n]+(?<!\s)\*")
_NUMBER = r"(?:\s?\d|[ \t](?:one|two|three|four|five|six|seven|eight|nine|ten|(?-i:[IVX]+|[A-Z]))\b)"
_RESPONSES = "******"
_ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_RELATIONS: Mapping[str, Callable[[int, int], bool]] = {
    "less than": lambda count, threshold: count < threshold,
    "at least": lambda count, threshold: count >= threshold,
    "at most": lambda count, threshold: count <= threshold,
    "around": lambda count, threshold: abs(count - threshold) <= max(1, round(threshold / 10)),
    "exactly": lambda count, threshold: count == threshold,
}
"""IFEval has the first two; the others are those of :mod:`~rlinf_envs.reward_terms.function_constraints`."""


def counted(count: Callable[[str], int], threshold: Any, relation: str) -> Check:
    """Return the check that compares a count of the text with ``threshold``.

    Raises:
        SettingError: an unknown relation.
        ValueError: ``threshold`` is no number.
    """
    if relation not in _RELATIONS:
        raise SettingError(f"reward.constraints: {unknown('relation', str(relation), _RELATIONS)}")
    number = int(threshold)
    return lambda text: _RELATIONS[relation](count(text), number)


def begins_with(text: str, phrase: str) -> bool:
    """Whether the first words of ``text`` are those of ``phrase``, in any case and in any dress."""
    start = text_counts.folded_words(phrase)
    return text_counts.folded_words(text)[: len(start)] == start


def _language(language: str) -> Check:
    if language not in SCRIPTS:
        raise SettingError(f"reward.constraints: {unknown('language', str(language), SCRIPTS)}")
    return lambda text: is_in_language(text, language)


def _first_word(num_paragraphs: Any, nth_paragraph: Any, first_word: str) -> Check:
    number, index = int(num_paragraphs), int(nth_paragraph) - 1

    def check(text: str) -> bool:
        parts = text_counts.paragraphs(text)
        return len(parts) == number and 0 <= index < number and begins_with(parts[index], first_word)

    return check


def _number_paragraphs(num_paragraphs: Any) -> Check:
    has_number = counted(lambda text: len(text_counts.divided(text)), num_paragraphs, "exactly")
    return lambda text: all(text_counts.divided(text)) and has_number(text)


def responses(text: str) -> list[str]:
    """Return the parts between ``******``, which may also stand before and behind all of them."""
    inner = text.strip().removeprefix(_RESPONSES).removesuffix(_RESPONSES)
    return [part.strip() for part in inner.split(_RESPONSES)]


def _two_responses(text: str) -> bool:
    parts = responses(text)
    return len(parts) == 2 and all(parts) and parts[0] != parts[1]


def _sections(section_spliter: str, num_sections: Any) -> Check:
    mark = section_spliter.strip()
    # A mark without letters, such as ---, needs no number behind it.
    number = _NUMBER if re.search(r"[^\W\d_]", mark) else ""
    start = re.compile(rf"^[\s#*_>]{{0,12}}{re.escape(mark)}{number}", re.MULTILINE | re.IGNORECASE)
    return counted(lambda text: len(start.findall(text)), num_sections, "at least")


def _capital_words(text: str) -> int:
    return sum(word.isupper() for word in text.split())


INSTRUCTIONS: Mapping[str, Callable[..., Check]] = {
    "keywords:existence": lambda keywords: (
        lambda text: all(text_counts.occurrences(text, word, whole_words=False) for word in keywords)
    ),
    "keywords:frequency": lambda keyword, frequency, relation: counted(
        lambda text: text_counts.occurrences(text, keyword, whole_words=False), frequency, relation
    ),
    "keywords:forbidden_words": lambda forbidden_words: (
        lambda text: not any(text_counts.occurrences(text, word) for word in forbidden_words)
    ),
    "keywords:letter_frequency": lambda letter, let_frequency, let_relation: counted(
        lambda text: text.lower().count(letter.strip().lower()), let_frequency, let_relation
    ),
    "language:response_language": lambda language: _language(language),
    "length_constraints:number_sentences": lambda num_sentences, relation: counted(
        text_counts.sentences, num_sentences, relation
    ),
    "length_constraints:number_paragraphs": _number_paragraphs,
    "length_constraints:number_words": lambda num_words, relation: counted(text_counts.words, num_words, relation),
    "length_constraints:nth_paragraph_first_word": _first_word,
    "detectable_content:number_placeholders": lambda num_placeholders: counted(
        text_forms.placeholders, num_placeholders, "at least"
    ),
    "detectable_content:postscript": lambda postscript_marker: (
        lambda text: text_forms.has_postscript(text, postscript_marker)
    ),
    "detectable_format:number_bullet_lists": lambda num_bullets: counted(text_counts.bullets, num_bullets, "exactly"),
    "detectable_format:constrained_response": lambda: lambda text: any(answer in text for answer in _ANSWERS),
    "detectable_format:number_highlighted_sections": lambda num_highlights: counted(
        lambda text: len(_HIGHLIGHT.findall(text)), num_highlights, "at least"
    ),
    "detectable_format:multiple_sections": _sections,
    "detectable_format:json_format": lambda: text_forms.is_json,
    "detectable_format:title": lambda: text_forms.has_title,
    "combination:two_responses": lambda: _two_responses,
    "combination:repeat_prompt": lambda prompt_to_repeat: (
        lambda text: folded(text).startswith(folded(prompt_to_repeat))
    ),
    "startend:end_checker": lambda end_phrase: lambda text: text_forms.ends_with(text.lower(), end_phrase.lower()),
    "startend:quotation": lambda: text_forms.is_quoted,
    "change_case:capital_word_frequency": lambda capital_frequency, capital_relation: counted(
        _capital_words, capital_frequency, capital_relation
    ),
    "change_case:english_capital": lambda: lambda text: text == text.upper() and is_in_language(text, "en"),
    "change_case:english_lowercase": lambda: lambda text: text == text.lower() and is_in_language(text, "en"),
    "punctuation:no_comma": lambda: lambda text: not text_forms.has_comma(text),
}
"""Published name -> its check, built from its arguments by their published names."""
