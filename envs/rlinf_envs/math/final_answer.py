"""Where the final answer stands in a response.

In this order: the last ``<answer>`` tag, the last complete box, the last ``####`` line, the last answer of a
JSON object, the last "answer is" or "Answer:", in English first, and last the final line, if it is an answer or ends
in one. A box or tag that was opened and never closed does not count, nor does anything in thoughts.
"""

from __future__ import annotations

import json
import re

from rlinf_envs.extraction import AnswerFormat, Box, boxes, extract, last_hashes, last_tag, without_thoughts
from rlinf_envs.math.dress import undressed
from rlinf_envs.math.languages import announced_in_other_languages
from rlinf_envs.math.prose import announced, denied, last_line
from rlinf_envs.math.words import number_word

_BETWEEN = re.compile(
    r"[\s$\\()\[\].]{0,20}(?:,|;|&|(?:\\(?:text|quad)\b\s*\{?\s*)?,?\s*\b(?:and|or)\b)\s*(?:and\b|or\b)?[\s}$\\(\[]{0,20}"
    r"(?:[A-Za-z](?:_\{?\w\}?)?\s*=\s*)?[\s$\\(\[]{0,20}"
)
"""What stands between two boxes that are one answer: "\\boxed{1} and \\boxed{2}"."""
_NAME = re.compile(r"([A-Za-z](?:_\{?\w\}?)?)\s*=\s*[$\\(\[\s]{0,20}$")
_LONGEST_BETWEEN = 60
_JSON = re.compile(
    r"[\"'](?:final_?|correct_?)?(?:answer|result)[\"']\s*:\s*"
    r"(?:(?P<text>\"(?:[^\"\\\n]|\\.){1,1000}\")|(?P<list>\[[^\[\]{}]{1,1000}\])|(?P<bare>[^\s,\"'\[\]{}]{1,100}))"
    r"(?=\s*[,}\n])",
    re.IGNORECASE,
)
_FENCE = re.compile(r"```\w*\s*([^`]{1,1000}?)\s*```\s*$")


def final_answer(response: str) -> str | None:
    """Find the final answer as it was written; None if there is none."""
    text = without_thoughts(response)
    marked = marked_answer(text)
    if marked is not None:
        return marked or None
    in_words = announced_answer(text)
    return _fenced(text) or last_line(text) if in_words is None else in_words or None


def marked_answer(text: str) -> str | None:
    """Return the answer in the last tag, box or ``####`` line of a text without thoughts; None if there is none.

    A tag that holds no answer gives an empty text.
    """
    tagged = last_tag(text)
    if tagged is not None:
        return _inside(tagged) or ""
    boxed = boxed_answer(text)
    if boxed is not None:
        return enclosed(boxed) or ""
    after_hashes = last_hashes(text)
    return None if after_hashes is None else _inside(after_hashes) or ""


def announced_answer(text: str) -> str | None:
    """Return the answer that JSON or words announce in a text without thoughts; None if there is none.

    An announcement in another language than English that leaves a doubt gives an empty text.
    """
    in_words = _json_value(text) or announced(text)
    return announced_in_other_languages(text) if in_words is None else in_words


def strict_answer(response: str, *, answer_format: AnswerFormat, cut: bool = False) -> str | None:
    """Find the final answer in one given format; None if it is missing (see :func:`rlinf_envs.extraction.extract`)."""
    if answer_format == "boxed":  # a complete box counts in a response that was cut, too
        result = (boxed_answer(without_thoughts(response)) or "").strip() or None
    else:
        result = extract(response, answer_format, cut=cut)
    return result if result is None or answer_format == "plain" else enclosed(result)


def reference_answer(answer: str) -> str:
    """Extract the answer from a reference that may be a solution.

    GSM8K ends in ``#### 72``, MATH in a box, and others in words: "The answer is 72."
    """
    return solved_answer(answer) or announced(without_thoughts(answer)) or answer.strip()


def solved_answer(solution: str) -> str | None:
    """Return what a solution has in its tag, behind ``####`` or in its box; None if it has none of them."""
    text = without_thoughts(solution)
    if tagged := last_tag(text):
        return boxed_answer(tagged) or tagged
    return last_hashes(text) or boxed_answer(text)


def boxed_answer(text: str) -> str | None:
    """Return the contents of the last box; None if there is none that is not denied ("certainly not \\boxed{5}").

    Boxes in a row, such as "\\boxed{1} and \\boxed{2}", are one answer, with their names if all have one.
    """
    results = [box for box in boxes(text) if not denied(text, box.start, box.end)]
    if not results:
        return None
    row = [results[-1]]
    for box in reversed(results[:-1]):
        gap = text[box.end : row[0].start] if row[0].start - box.end <= _LONGEST_BETWEEN else ""
        if not _BETWEEN.fullmatch(gap):
            break
        row.insert(0, box)
    if len({box.content.strip() for box in row}) == 1:
        return row[-1].content
    names = [_name(text, box) for box in row]
    contents = [box.content.strip() for box in row]
    if all(names):
        contents = [f"{name} = {content}" for name, content in zip(names, contents, strict=True)]
    return ", ".join(contents)


def _name(text: str, box: Box) -> str:
    result = _NAME.search(text[max(box.start - _LONGEST_BETWEEN, 0) : box.start])
    return result.group(1) if result else ""


def _inside(text: str) -> str | None:
    boxed = boxed_answer(text)
    if boxed is not None:
        return enclosed(boxed)
    return _json_value(text) or announced(text) or enclosed(_fenced(text) or text)


def enclosed(text: str) -> str | None:
    """Read the answer in a box, tag or ``####`` line: the text or what it announces, with number words as digits.

    In a sentence a word such as "three" may count anything, so it is read only if the answer stands alone.
    """
    bare = undressed(text).strip()
    parts = [bare] if number_word(bare) is not None else bare.split(" and ")
    values = [number_word(part) for part in parts]
    if None not in values:
        return " and ".join(map(str, values))
    return announced(bare) or text.strip() or None


def _json_value(text: str) -> str | None:
    """Return the last answer of a JSON object, as text; a list as its members."""
    objects = list(_JSON.finditer(text))
    if not objects:
        return None
    result = objects[-1]
    try:
        value = json.loads(result["text"] or result["list"] or result["bare"])
    except ValueError:
        # Not JSON by the letter: LaTeX with single backslashes is how models write it.
        value = (result["text"] or result["list"] or result["bare"]).strip('"')
    return ", ".join(str(member) for member in value) if isinstance(value, list) else str(value).strip() or None


def _fenced(text: str) -> str | None:
    """Return the only line of a code block at the end of ``text``."""
    start = text.rfind("```", 0, max(text.rstrip().rfind("```"), 0))
    result = _FENCE.match(text, start) if start >= 0 else None
    return result.group(1) if result and "\n" not in result.group(1) else None
