"""Where the final answer stands in a response.

In this order: the last ``<answer>`` tag, the last complete box, the last ``####`` line, the last "answer is" or
"Answer:", and last the final line, if it is an answer or ends in one. A box or tag that was opened and never closed
does not count.
"""

from __future__ import annotations

import re

from rlinf_envs.extraction import last_boxed, last_hashes, last_tag

_ANNOUNCED = re.compile(r"\banswers?\b\W{0,4}(?:\s+(?:is|are|equals)\b|:|=)[\s:*]*", re.IGNORECASE)
_REASON = re.compile(r",?\s+(?:because|since|which|as|so|where|when|if)\b", re.IGNORECASE)
_GLOSS = re.compile(r"\s+\([a-z -]+\)\s*$")
_CONCLUDED = re.compile(r"(\$[^$]+\$|\S+)\s+is\s+(?:the|our|my)\s+(?:final\s+|correct\s+)?answer\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\.(?=\s|$)|\n")
_DOLLARS = re.compile(r"\$\$?([^$]+)\$\$?")
_PARENTHESES = re.compile(r"\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])[-−]?[$€£]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?\s?%?(?!\w)")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")

_LAST_LINE = 300


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
    rest = response[announcements[-1].end() :].lstrip(" *\n")
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
    numbers = _NUMBER.findall(line)
    if "=" in line:
        after = line.rsplit("=", 1)[1].strip(" .")
        if after and not _WORD.search(after):
            return after
    return numbers[-1].strip() if numbers else None
