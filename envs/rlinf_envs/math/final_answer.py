"""Where the final answer stands in a response.

In this order: the last ``<answer>`` tag, the last complete box, the last ``####`` line, the last "answer is" or
"Answer:", and last the final line, if it is an answer or ends in one. A box or tag that was opened and never closed
does not count.
"""

from __future__ import annotations

import re
from itertools import takewhile

from rlinf_envs.arithmetic import exact_value, typed
from rlinf_envs.extraction import last_boxed, last_hashes, last_tag

# All of these are linear in the length of the text: a run of white space is one blank before a pattern sees it.
_ANNOUNCED = re.compile(r"\banswers?\b\W{0,4}(?:\s+(?:is|are|equals)\b|:|=)[\s:*]*", re.IGNORECASE)
_REASON = re.compile(r",?\s+(?:because|since|which|as|so|where|when|if(?! not\b))\b", re.IGNORECASE)
# "12 (twelve)"; a letter alone in brackets is another choice.
_GLOSS = re.compile(r"\s+\([a-z -]{2,}\)\s*$")
_CONCLUDED = re.compile(r"(\$[^$]+\$|\S+)\s+is\s+(?:the|our|my)\s+(?:final\s+|correct\s+)?answer\b", re.IGNORECASE)
# "B. Or A.": what follows takes the answer back, so it belongs to it.
_SENTENCE_END = re.compile(r"\.(?=\s|$)(?!\s+or\b)|\n", re.IGNORECASE)
_BLANKS = re.compile(r"[^\S\n]+")
_DOLLARS = re.compile(r"\$\$?([^$]+)\$\$?")
_PARENTHESES = re.compile(r"\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])[-−]?[$€£]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?\s?%?(?!\w)")
_VARIABLE = re.compile(r"\W*[A-Za-z](?:_\w+)?")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")

_HEDGE = re.compile(r"\s*(?:\w+\s*)?,?\s*\bor\s+(?:\w+\s+)?")
"""What stands between two numbers of which neither is the answer: "4 apples, or maybe 5"."""

_LAST_LINE = 300
_MAX_SENTENCE = 4000
"""Characters behind "the answer is" in which the answer is looked for."""


def final_answer(response: str) -> str | None:
    """The final answer as it was written; None where there is none to be found."""
    tagged = last_tag(response)
    if tagged is not None:
        return _inside(tagged)
    boxed = last_boxed(response)
    if boxed is not None:
        return boxed.strip() or None
    after_hashes = last_hashes(response)
    if after_hashes is not None:
        return after_hashes
    return _announced(response) or _last_line(response)


def reference_answer(answer: str) -> str:
    """The answer itself, out of a reference that may be a solution (GSM8K ends in ``#### 72``, MATH in a box)."""
    return last_hashes(answer) or last_boxed(answer) or answer.strip()


def _inside(text: str) -> str | None:
    return last_boxed(text) or _announced(text) or text.strip() or None


def _announced(response: str) -> str | None:
    announcements = list(_ANNOUNCED.finditer(response))
    if not announcements:
        return None
    start = announcements[-1].end()
    rest = _BLANKS.sub(" ", response[start : start + _MAX_SENTENCE].lstrip(" *\n"))
    for pattern in (_DOLLARS, _PARENTHESES):
        math = pattern.match(rest)
        if math is not None and not math.group(0).startswith("$ "):
            return _with_unit(math.group(0), rest[math.end() :])
    sentence = _SENTENCE_END.split(rest, maxsplit=1)[0]
    return _GLOSS.sub("", _REASON.split(sentence, maxsplit=1)[0]).strip(" *") or None


def _with_unit(math: str, rest: str) -> str:
    """``math`` with what follows it in the sentence when that is short enough to be a unit or the rest of a list."""
    tail = _REASON.split(_SENTENCE_END.split(rest, maxsplit=1)[0], maxsplit=1)[0]
    return (math + tail).strip(" *") if len(tail) <= 40 else math


def _last_line(response: str) -> str | None:
    lines = response.strip().splitlines()
    if not lines:
        return None
    line = lines[-1].strip().strip("*").strip()
    if len(line) > _LAST_LINE:
        line = line[-_LAST_LINE:]
    concluded = _CONCLUDED.findall(line)
    if concluded:
        return concluded[-1].strip("*,") or None
    words = _WORD.findall(line)
    if len(words) <= 2 and "=" not in line:
        return line.rstrip(".") or None
    for pattern in (_DOLLARS, _PARENTHESES):
        math = pattern.findall(line)
        if math:
            last = math[-1]
            return (last if isinstance(last, str) else "".join(last)).strip()
    if "=" in line:
        concluded_value = _chained_value(line)
        if concluded_value is not None:
            return concluded_value
    return _last_number(line)


def _chained_value(line: str) -> str | None:
    """The value behind the last "=" of a sentence, with the sums before it where they have another value.

    A line of mathematics alone ("x = 10/2 = 5") is taken whole: its members are compared when it is graded.
    """
    bare = line.rstrip(" .")
    pieces = [piece.strip() for piece in bare.split("=")]
    value = pieces[-1]
    if not value or _WORD.search(value):
        return None
    if not _WORD.search(bare) and not (len(pieces) == 2 and _VARIABLE.fullmatch(pieces[0])):
        return bare
    sums = list(takewhile(lambda piece: exact_value(typed(piece)) is not None, reversed(pieces)))
    return value if len({exact_value(typed(piece)) for piece in sums}) <= 1 else " = ".join(reversed(sums))


def _last_number(line: str) -> str | None:
    """The last number of ``line``; both, where it is the second of "4 or 5"."""
    numbers = list(_NUMBER.finditer(line))
    if not numbers:
        return None
    start = numbers[-1].start()
    if len(numbers) > 1 and _HEDGE.fullmatch(line, numbers[-2].end(), start):
        start = numbers[-2].start()
    return line[start : numbers[-1].end()].strip()
