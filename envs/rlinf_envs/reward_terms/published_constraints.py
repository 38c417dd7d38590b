"""The verifiable instructions of IFEval (Zhou et al. 2023, arXiv:2311.07911), by their published names.

A row has a list of names (``length_constraints:number_words``) and one of their arguments (``{num_words: 80, relation:
at least}``). Arguments that are null belong to other instructions of the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlinf.base.json_text import written_value
from rlinf_envs.errors import SettingError
from rlinf_envs.reward_terms import text_counts, text_forms
from rlinf_envs.reward_terms.language_detection import SCRIPTS, is_in_language
from rlinf_envs.suggest import unknown

Check = Callable[[str], bool]
"""Whether a text keeps an instruction."""

NAMES, ARGUMENTS = ("instruction_id_list", "instruction_id"), "kwargs"
"""Fields of rows."""
_HIGHLIGHT = re.compile(r"\*\*(?!\s)[^*\n]+\*\*|\*(?!\s)[^*\n]+(?<!\s)\*")
_DIVIDER = re.compile(r"(?<!\*)\*{3}(?!\*)")
_RESPONSES = "******"
_ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_RELATIONS: Mapping[str, Callable[[int, int], bool]] = {
    "less than": lambda count, threshold: count < threshold,
    "at least": lambda count, threshold: count >= threshold,
}


def _counted(count: Callable[[str], int], threshold: Any, relation: str) -> Check:
    if relation not in _RELATIONS:
        raise SettingError(f"reward.constraints: {unknown('relation', str(relation), _RELATIONS)}")
    return lambda text: _RELATIONS[relation](count(text), int(threshold))


def _language(language: str) -> Check:
    if language not in SCRIPTS:
        raise SettingError(f"reward.constraints: {unknown('language', str(language), SCRIPTS)}")
    return lambda text: is_in_language(text, language)


def _first_word(num_paragraphs: Any, nth_paragraph: Any, first_word: str) -> Check:
    def check(text: str) -> bool:
        parts = [part for part in re.split(r"\n\s*\n", text) if part.strip()]
        if len(parts) != int(num_paragraphs) or not 1 <= int(nth_paragraph) <= len(parts):
            return False
        first = re.search(r"[^\W_]+(?:[-'’][^\W_]+)*", parts[int(nth_paragraph) - 1])
        return first is not None and first.group().lower() == first_word.strip().lower()

    return check


def _divided(text: str) -> list[str]:
    return [part.strip() for part in _DIVIDER.split(text.strip().strip("*"))]


def _two_responses(text: str) -> bool:
    parts = [part.strip() for part in text.strip().removeprefix(_RESPONSES).removesuffix(_RESPONSES).split(_RESPONSES)]
    return len(parts) == 2 and all(parts) and parts[0] != parts[1]


def _sections(section_spliter: str, num_sections: Any) -> Check:
    start = re.compile(rf"^[\s#*_>]{{0,12}}{re.escape(section_spliter.strip())}\s?\d+", re.MULTILINE | re.IGNORECASE)
    return lambda text: len(start.findall(text)) >= int(num_sections)


def _repeats(text: str, prompt: str) -> bool:
    return " ".join(text.split()).lower().startswith(" ".join(prompt.split()).lower())


def _capital_words(text: str) -> int:
    return sum(word.isupper() for word in text.split())


INSTRUCTIONS: Mapping[str, Callable[..., Check]] = {
    "keywords:existence": lambda keywords: (
        lambda text: all(text_counts.occurrences(text, word, whole_words=False) for word in keywords)
    ),
    "keywords:frequency": lambda keyword, frequency, relation: _counted(
        lambda text: text_counts.occurrences(text, keyword, whole_words=False), frequency, relation
    ),
    "keywords:forbidden_words": lambda forbidden_words: (
        lambda text: not any(text_counts.occurrences(text, word) for word in forbidden_words)
    ),
    "keywords:letter_frequency": lambda letter, let_frequency, let_relation: _counted(
        lambda text: text.lower().count(letter.strip().lower()), let_frequency, let_relation
    ),
    "language:response_language": lambda language: _language(language),
    "length_constraints:number_sentences": lambda num_sentences, relation: _counted(
        text_counts.sentences, num_sentences, relation
    ),
    "length_constraints:number_paragraphs": lambda num_paragraphs: (
        lambda text: all(_divided(text)) and len(_divided(text)) == int(num_paragraphs)
    ),
    "length_constraints:number_words": lambda num_words, relation: _counted(text_counts.words, num_words, relation),
    "length_constraints:nth_paragraph_first_word": _first_word,
    "detectable_content:number_placeholders": lambda num_placeholders: _counted(
        text_forms.placeholders, num_placeholders, "at least"
    ),
    "detectable_content:postscript": lambda postscript_marker: (
        lambda text: text_forms.has_postscript(text, postscript_marker)
    ),
    "detectable_format:number_bullet_lists": lambda num_bullets: (
        lambda text: text_counts.bullets(text) == int(num_bullets)
    ),
    "detectable_format:constrained_response": lambda: lambda text: any(answer in text for answer in _ANSWERS),
    "detectable_format:number_highlighted_sections": lambda num_highlights: _counted(
        lambda text: len(_HIGHLIGHT.findall(text)), num_highlights, "at least"
    ),
    "detectable_format:multiple_sections": _sections,
    "detectable_format:json_format": lambda: text_forms.is_json,
    "detectable_format:title": lambda: text_forms.has_title,
    "combination:two_responses": lambda: _two_responses,
    "combination:repeat_prompt": lambda prompt_to_repeat: lambda text: _repeats(text, prompt_to_repeat),
    "startend:end_checker": lambda end_phrase: lambda text: text_forms.ends_with(text.lower(), end_phrase.lower()),
    "startend:quotation": lambda: text_forms.is_quoted,
    "change_case:capital_word_frequency": lambda capital_frequency, capital_relation: _counted(
        _capital_words, capital_frequency, capital_relation
    ),
    "change_case:english_capital": lambda: lambda text: text == text.upper() and is_in_language(text, "en"),
    "change_case:english_lowercase": lambda: lambda text: text == text.lower() and is_in_language(text, "en"),
    "punctuation:no_comma": lambda: lambda text: not text_forms.has_comma(text),
}
"""Published name -> its check, built from its arguments by their published names."""


def contents(value: Any) -> Any:
    """Return the contents of a row's field, which a table may hold as text.

    Raises:
        SettingError: a text that is neither JSON nor a value of Python.
    """
    if not isinstance(value, str):
        return value
    try:
        return written_value(value)
    except ValueError:
        raise SettingError(f"reward.constraints: the field holds neither a mapping nor JSON: {value!r:.80}") from None


def are_published(value: Any) -> bool:
    """Whether the contents of a field are instructions by their published names, in one of the forms of data sets."""
    return isinstance(value, Sequence) or (isinstance(value, Mapping) and any(name in value for name in NAMES))


def published(value: Any, row: Mapping[str, Any]) -> list[Check]:
    """Return the checks of a row.

    Args:
        value: names, whose arguments are in the row's ``kwargs``; or a mapping with both, also in a list.

    Raises:
        SettingError: an instruction or argument that is unknown, or a value of another form.
    """
    if isinstance(value, Sequence) and len(value) == 1 and isinstance(value[0], Mapping):
        [value] = value
    if isinstance(value, Mapping):
        row = value
        value = next((row[name] for name in NAMES if name in row), None)
    arguments = contents(row.get(ARGUMENTS))
    if not isinstance(value, Sequence) or not isinstance(arguments, Sequence) or len(value) != len(arguments):
        raise SettingError(
            f"reward.constraints: a row needs as many {ARGUMENTS} as instructions, got {value!r:.80} and "
            f"{arguments!r:.80}"
        )
    return [_check(name, own) for name, own in zip(value, arguments, strict=True)]


def _check(name: Any, arguments: Any) -> Check:
    if name not in INSTRUCTIONS:
        raise SettingError(f"reward.constraints: {unknown('instruction', str(name), INSTRUCTIONS)}")
    own = {key: value for key, value in (arguments or {}).items() if value is not None}
    try:
        return INSTRUCTIONS[name](**own)
    except TypeError as error:
        reason = str(error).rpartition("() ")[2]
        raise SettingError(f"reward.constraints: {name}: {reason} (it has {', '.join(own) or 'none'})") from None
