"""Reference answers that were taken and are hardly meant so: what is odd about each, in words."""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Iterator, Mapping
from typing import Any

from rlinf_envs.extraction import last_boxed
from rlinf_envs.tasks import Task

_NOT_FINITE = frozenset({"nan", "inf"})
"""How Python writes the JSON numbers NaN, Infinity and 1e999."""
_NO_ANSWER = frozenset({"proof", "notfound", "not found", "none", "n/a", "null", "unknown", "see solution"})
"""What data sets write instead of an answer; NuminaMath's words are the first two."""
_CHOICES = frozenset({"choices", "options"})
_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_SENTENCE = 8
"""Words of a reference from which on hardly any response will equal it."""


def doubts_about(task: Task, written: str) -> list[str]:
    """Oddities of the reference of ``task``, which was read out of ``written``."""
    doubts = (_no_answer(task.answer), _boxes(task, written), _choices(task), _countdown(task))
    return [doubt for doubt in doubts if doubt]


def _no_answer(answer: str) -> str:
    if answer.lstrip("-") in _NOT_FINITE:
        return f"the answer is the number {answer}"
    if answer.strip().lower() in _NO_ANSWER:
        return f"the answer is the word {answer!r}: hardly a response can be right"
    words = len(_WORD.findall(answer))
    return f"the answer has {words} words: a response must have the same ones to be right" if words > _SENTENCE else ""


def _boxes(task: Task, written: str) -> str:
    """Join several boxes of one solution: for example both roots, or the steps on the way."""
    starts = [result.start() for result in _BOX.finditer(written)]
    pieces = [written[start:end] for start, end in itertools.pairwise([*starts, None])] if len(starts) > 1 else []
    contents = dict.fromkeys(box.strip() for box in map(last_boxed, pieces) if box is not None)
    inside = [box for box in contents if box not in task.answer]
    return f"the solution has the boxes {', '.join(contents)}, and the answer is {task.answer}" if inside else ""


def _choices(task: Task) -> str:
    """Choices in columns of their own, which the question does not show, or whose number is the answer."""
    for name, texts in _listed_choices(task.row):
        if not all(text in task.question for text in texts):
            return f"the question does not show the {name} that the row has: put them into the question's column"
        if task.answer.isdecimal() and int(task.answer) < len(texts) and task.answer not in texts:
            return f"the answer {task.answer} may be the number of one of the {name}: write what a response must have"
    return ""


def _countdown(task: Task) -> str:
    """Name a target that is to be calculated from numbers of the row: the answer is the calculation."""
    listed = next((name for name in ("nums", "numbers") if isinstance(task.row.get(name), list)), None)
    if listed is None or task.answer != str(task.row.get("target")):
        return ""
    return f"the answer is the target of a calculation with {listed}: such rows are for a reward function of your own"


def _listed_choices(row: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield (name, texts) of the choices in a row: of one column, or of the columns A, B and so on."""
    for name, value in row.items():
        listed = value.get("text", value.values()) if isinstance(value, dict) else value
        if str(name).lower() in _CHOICES and isinstance(listed, (list, tuple)) and listed:
            yield str(name), [str(one).strip() for one in listed]
    letters = list(itertools.takewhile(lambda letter: row.get(letter) is not None, string.ascii_uppercase))
    if len(letters) > 1:
        yield f"columns {' '.join(letters)}", [str(row[letter]).strip() for letter in letters]
