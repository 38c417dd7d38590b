"""The instructions that IF-RLVR (Pyatkin et al. 2025, arXiv:2507.02833) adds to IFEval's, by their published names.

Words are those of a reader, in any case and without the marks around them. Where the published check differs from the
request in the prompt, the request counts:

- ``word_count_different_numbers``: the prompt names a number of times, without ``relation``.
- ``copy_span_idx``: the character at the end index may belong to the span, as the prompt has it, or not.
- ``palindrome``: a word of one or two letters is none, and a sentence may be one.
- ``sentence_hyphens``: hyphens within words separate no sentences.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from rlinf.base.plain_text import folded
from rlinf_envs.reward_terms import text_counts, text_forms
from rlinf_envs.reward_terms.published_constraints import INSTRUCTIONS, Check, begins_with, counted, responses
from rlinf_envs.reward_terms.text_counts import folded_words, sentence_list, word_list

_DOTS, _EXCLAMATIONS = frozenset(".…。．"), frozenset("!！¡‼❗")


def _times(keyword: str, number: Any) -> Check:
    return counted(lambda text: text_counts.occurrences(text, keyword), number, "exactly")


def _once_and_twice(keyword1: str, keyword2: str) -> Check:
    first, second = _times(keyword1, 1), _times(keyword2, 2)
    return lambda text: first(text) and second(text)


def _at_position(keyword: str, n: Any, m: Any) -> Check:
    sentence, word, phrase = int(n) - 1, int(m) - 1, folded_words(keyword)
    return lambda text: any(
        folded_words(each)[word : word + len(phrase)] == phrase for each in sentence_list(text)[sentence:][:1]
    )


def _starts_as_it_ends(text: str) -> bool:
    words = word_list(text)
    return (
        len(words) > 1 and words[0].casefold() == words[-1].casefold() and text.rstrip("*_` \t\r\n").endswith(words[-1])
    )


def _has_consecutive_initials(text: str) -> bool:
    initials = [word[0] for word in folded_words(text)]
    return any(
        first.isalpha() and second.isalpha() and ord(second) - ord(first) == 1
        for first, second in itertools.pairwise(initials)
    )


def _each_sentence(keeps: Callable[[str], bool]) -> Check:
    return lambda text: bool(sentence_list(text)) and all(map(keeps, sentence_list(text)))


def _ends_with(text: str, phrase: str) -> bool:
    end = folded_words(phrase)
    return folded_words(text)[-len(end) :] == end


def _repeats_phrase(phrase: str, small_n: Any) -> Check:
    """Return the check that the phrase occurs in variants with one other inner word, and not as it is."""
    reference, number = folded_words(phrase), int(small_n)

    def check(text: str) -> bool:
        words = folded_words(text)
        windows = [words[start : start + len(reference)] for start in range(len(words) - len(reference) + 1)]
        differences = [
            sum(one != other for one, other in zip(window, reference, strict=True))
            for window in windows
            if (window[:1], window[-1:]) == (reference[:1], reference[-1:])
        ]
        return differences.count(1) == number and 0 not in differences

    return check


def _copies(prompt_to_repeat: str) -> Check:
    return lambda text: folded(text) == folded(prompt_to_repeat)


def _copies_often(prompt_to_repeat: str, N: Any) -> Check:
    number, copies = int(N), _copies(prompt_to_repeat)
    return lambda text: len(responses(text)) == number and all(map(copies, responses(text)))


def _copies_span(prompt_to_repeat: str, n_start: Any, n_end: Any) -> Check:
    start, end = int(n_start), int(n_end)
    return lambda text: folded(text) in (folded(prompt_to_repeat[start:end]), folded(prompt_to_repeat[start : end + 1]))


def _composed(n_sent: Any, n_words: Any) -> Check:
    sentences, words = int(n_sent), int(n_words)
    return lambda text: (
        [[text_counts.words(each) for each in sentence_list(part)] for part in text_counts.divided(text)]
        == [[words] * sentences] * 3
    )


TRAINING_INSTRUCTIONS: Mapping[str, Callable[..., Check]] = {
    "keywords:word_once": lambda keyword: _times(keyword, 1),
    "keywords:word_count_different_numbers": lambda keyword, frequency, relation="": _times(keyword, frequency),
    "keywords:exclude_word_harder": lambda keyword: _times(keyword, 0),
    "keywords:palindrome": lambda: text_forms.has_palindrome,
    "keywords:keyword_specific_position": _at_position,
    "keywords:start_end": lambda: _starts_as_it_ends,
    "keywords:no_adjacent_consecutive": lambda: lambda text: not _has_consecutive_initials(text),
    "letters:letter_counting": lambda N, relation: counted(lambda text: sum(map(str.isalpha, text)), N, relation),
    "letters:letter_counting2": INSTRUCTIONS["keywords:letter_frequency"],
    "paragraphs:paragraphs": lambda: INSTRUCTIONS["length_constraints:number_paragraphs"](2),
    "paragraphs:paragraphs2": lambda: counted(lambda text: len(text_counts.paragraphs(text)), 2, "exactly"),
    "first_word:first_word_sent": lambda first_word: _each_sentence(lambda text: begins_with(text, first_word)),
    "first_word:first_word_answer": lambda first_word: lambda text: begins_with(text, first_word),
    "last_word:last_word_sent": lambda last_word: _each_sentence(lambda text: _ends_with(text, last_word)),
    "last_word:last_word_answer": lambda last_word: lambda text: _ends_with(text, last_word),
    "detectable_format:bigram_wrapping": lambda: lambda text: text_forms.are_wrapped(text, "<<", ">>", size=2),
    "detectable_format:square_brackets": lambda: lambda text: text_forms.are_wrapped(text, "[", "]", size=1),
    "detectable_format:sentence_hyphens": lambda: text_forms.are_hyphenated,
    "punctuation:punctuation_dot": lambda: _DOTS.isdisjoint,
    "punctuation:punctuation_exclamation": lambda: _EXCLAMATIONS.isdisjoint,
    "copy:repeat_phrase": _repeats_phrase,
    "copy:copy": _copies,
    "copy:copying_simple": _copies,
    "copy:copying_multiple": _copies_often,
    "count:lowercase_counting": lambda N: counted(
        lambda text: sum(word.islower() for word in word_list(text)), N, "at most"
    ),
    "count:counting_composition": _composed,
    "count:count_unique": lambda: lambda text: len(set(folded_words(text))) == len(folded_words(text)),
    "count:count_increment_word": _once_and_twice,
    "new:copy_span_idx": _copies_span,
}
"""Published name -> its check, built from its arguments by their published names."""
