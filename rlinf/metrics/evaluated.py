"""The names of what the evaluations of a run measure, as far as its configuration determines them."""

from __future__ import annotations

from collections.abc import Mapping

from rlinf.metrics.collecting import EVALUATION_OF_SIMULATORS, EVALUATION_OF_TEXT
from rlinf.schema import EvaluationConfig
from rlinf.schema.run import Pictures, Questions, Words

WITH_WORDS: Mapping[Words, str] = {"other_goal": "eval/follows", "blank": "eval/blank_words"}
"""What an evaluation with other words is called."""
WITH_PICTURES: Mapping[Pictures, str] = {"blank": "eval/blank_pictures", "swapped": "eval/swapped_pictures"}
"""What an evaluation with other pictures is called."""
WITH_QUESTIONS: Mapping[Questions, str] = {"blank": "eval/blank_questions", "swapped": "eval/swapped_questions"}
"""What an evaluation with other questions is called."""
WRONG_TOOLS = "eval/wrong_tools"
"""What an evaluation with wrong answers of environments is called."""


def pass_sizes(samples: int) -> list[int]:
    """Every k of the `pass@k` that are reported of ``samples`` responses: the powers of two, and all.

    >>> pass_sizes(6)
    [2, 4, 6]
    """
    return sorted({*(2**power for power in range(1, samples.bit_length()) if 2**power <= samples), samples} - {0, 1})


def evaluated(options: EvaluationConfig, *, text: bool) -> list[str]:
    """Return the metrics of a language model's evaluations (``text``), or a simulator policy's.

    ``{term}`` in a name stands for a word of the user's.
    """
    if not text:
        absent = {name for words, name in WITH_WORDS.items() if words not in options.words}
        return [name for name in EVALUATION_OF_SIMULATORS if name not in absent]
    names: list[str] = []
    unasked = {name for pictures, name in WITH_PICTURES.items() if pictures not in options.pictures}
    unasked |= {name for questions, name in WITH_QUESTIONS.items() if questions not in options.questions}
    unasked |= set() if options.wrong_tools else {WRONG_TOOLS}
    for name in EVALUATION_OF_TEXT:
        if name in unasked:
            continue
        sizes = pass_sizes(options.samples)
        sizes = sizes if name == "eval/pass@{k}" else sizes[-1:]
        names += [name.replace("{k}", str(size)) for size in sizes] if "{k}" in name else [name]
    return names
