"""The verifiable instructions of RLVR-IFeval (Tülu 3, Lambert et al. 2024, arXiv:2411.15124), by their function names.

They are those of IFEval (:mod:`~rlinf_envs.reward_terms.published_constraints`) with other arguments. A keyword and a
letter, in any case, have exact counts. ``quantifier`` is "at least", "at most" or "around" (within a tenth, or one).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from rlinf_envs.reward_terms import text_counts
from rlinf_envs.reward_terms.published_constraints import INSTRUCTIONS, Check, counted

_OPTION_END = re.compile(r"[,;|/\n]|\bor\b")


def _choice(options: Sequence[str]) -> Check:
    """Return the check that one of the options occurs, which one text may list."""
    listed = _OPTION_END.split(options[0]) if len(options) == 1 else options
    return lambda text: any(text_counts.occurrences(text, str(option).strip(" \"'")) for option in listed)


FUNCTIONS: Mapping[str, Callable[..., Check]] = {
    "verify_keywords": lambda keyword_list: INSTRUCTIONS["keywords:existence"](keyword_list),
    "verify_keyword_frequency": lambda word, N: counted(lambda text: text_counts.occurrences(text, word), N, "exactly"),
    "validate_forbidden_words": INSTRUCTIONS["keywords:forbidden_words"],
    "verify_letter_frequency": lambda letter, N: INSTRUCTIONS["keywords:letter_frequency"](letter, N, "exactly"),
    "validate_response_language": INSTRUCTIONS["language:response_language"],
    "verify_paragraph_count": lambda N: INSTRUCTIONS["length_constraints:number_paragraphs"](N),
    "validate_word_constraint": lambda N, quantifier: INSTRUCTIONS["length_constraints:number_words"](N, quantifier),
    "verify_sentence_constraint": lambda N, quantifier: INSTRUCTIONS["length_constraints:number_sentences"](
        N, quantifier
    ),
    "validate_paragraphs": lambda N, first_word, i: INSTRUCTIONS["length_constraints:nth_paragraph_first_word"](
        N, i, first_word
    ),
    "verify_postscript": INSTRUCTIONS["detectable_content:postscript"],
    "validate_placeholders": lambda N: INSTRUCTIONS["detectable_content:number_placeholders"](N),
    "verify_bullet_points": lambda N: INSTRUCTIONS["detectable_format:number_bullet_lists"](N),
    "validate_title": INSTRUCTIONS["detectable_format:title"],
    "validate_choice": _choice,
    "validate_highlighted_sections": lambda N: INSTRUCTIONS["detectable_format:number_highlighted_sections"](N),
    "validate_sections": lambda N, section_splitter: INSTRUCTIONS["detectable_format:multiple_sections"](
        section_splitter, N
    ),
    "validate_json_format": INSTRUCTIONS["detectable_format:json_format"],
    "validate_repeat_prompt": lambda original_prompt: INSTRUCTIONS["combination:repeat_prompt"](original_prompt),
    "validate_two_responses": INSTRUCTIONS["combination:two_responses"],
    "validate_uppercase": INSTRUCTIONS["change_case:english_capital"],
    "validate_lowercase": INSTRUCTIONS["change_case:english_lowercase"],
    "validate_frequency_capital_words": lambda N, quantifier: INSTRUCTIONS["change_case:capital_word_frequency"](
        N, quantifier
    ),
    "validate_end": INSTRUCTIONS["startend:end_checker"],
    "validate_quotation": INSTRUCTIONS["startend:quotation"],
    "validate_no_commas": INSTRUCTIONS["punctuation:no_comma"],
}
"""Function name -> its check, built from its arguments by their published names."""
