"""The grade in a judge's reply, as judges write it."""

from __future__ import annotations

import re

from rlinf_envs.extraction import last_boxed, without_thoughts

_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBER = rf"(?P<value>[-−]?(?:\d{{1,6}}(?:[.,]\d{{1,6}})?|\.\d{{1,6}})|\b(?:{'|'.join(_WORDS)})\b)"
_DRESS = r"[\s\"'`*_:=：|>(\[{$~+]{0,16}(?:\\boxed\{)?"
_SCALE = r"(?:[\]})\"'`*_$\s]{0,8}(?:(?P<percent>%)|(?:/|out\s+of)[*_\s]{0,4}(?P<best>\d{1,4}(?:\.\d{1,4})?)))?"
_GRADE = _NUMBER + _SCALE
_MORE = re.compile(r"[A-Za-z0-9_%]|[.,]\d|[-–—]\w|\s?stars?\b|\s?(?:[-–—/]|to\b|or\b|and\b)\s?\d")
"""What makes a number part of another one, or of a range: "1e1", "7-8", "7 or 8"."""
_LISTED = re.compile(r"\.[ \t]+\w")
"""Behind the number of a list item."""
_LABEL = r"(?<![\w])(?:score|rating|grade)s?\b"
_BETWEEN = r"(?:\s?\([^()\n]{0,40}\))?(?:\s+(?:is|of|would\s+be))?(?:\s?[-–—]\s)?"
_LABELLED = re.compile(_LABEL + r"[\"'*_`]{0,4}" + _BETWEEN + _DRESS + _GRADE, re.IGNORECASE)
_LINE_START = re.compile(r"^[^\w\n]{0,12}(?:(?:the|my|final|overall|total)\s+){0,3}\Z", re.IGNORECASE | re.MULTILINE)
_BRACKETS = re.compile(r"\[\[\s?" + _NUMBER + r"\s?\]\](?P<percent>)(?P<best>)")
_GIVEN = re.compile(
    r"\b(?:give|rate|grade|assign|score|deserve|merit)s?"
    r"(?:\s+(?:it|this|that|the|response|answer|solution|an?|at|as|of|score|rating|grade|solid)\b){0,6}[\s:*_\"']{1,8}"
    + _GRADE
    + r"(?=[\"'*_)]{0,4}(?:[.,;:!?)\n]|\s*$|\s+(?:for|because|since|as|points?)\b))",
    re.IGNORECASE,
)
_OUT_OF = re.compile(
    r"(?<![\w.,/-])(?P<value>\d{1,4}(?:\.\d{1,4})?)[*_\s]{0,4}(?P<percent>)(?:/|out\s+of)[*_\s]{0,4}(?P<best>\d{1,4})",
    re.IGNORECASE,
)
_ALONE = re.compile(r"\A[\s*_`\"'(\[]{0,8}" + _GRADE + r"[\s*_`\"')\].]*\Z", re.IGNORECASE)


def grade_in(reply: str, scale: float) -> float | None:
    """Return the grade behind the judge's thoughts as a share of the best, from 0 to 1; None if there is none.

    The last line that begins with "Score" counts ("Rating" and "Grade" too). Elsewhere all grades must agree.

    >>> grade_in("Accuracy score: 4/5. **Score:** 8", 10), grade_in("[[7.5]]", 10), grade_in("Score: 7-8", 10)
    (0.8, 0.75, None)
    """
    text = without_thoughts(reply)
    labelled = [
        (_begins_line(text, result.start()), _share(text, result, scale)) for result in _LABELLED.finditer(text)
    ]
    verdicts = [share for begins, share in labelled if begins]
    if verdicts:
        return verdicts[-1]
    grades = [share for _, share in labelled] or [
        _share(text, result, scale)
        for pattern in (_BRACKETS, _GIVEN, _OUT_OF)
        for result in pattern.finditer(text)
        if pattern is not _OUT_OF or float(result["best"]) == scale
    ]
    if not grades:
        alone = _ALONE.match(last_boxed(text) or text)
        return _share(alone.string, alone, scale) if alone else None
    return grades[0] if len(set(grades)) == 1 else None


def _begins_line(text: str, start: int) -> bool:
    line = max(text.rfind("\n", 0, start) + 1, start - 60)
    return _LINE_START.match(text[line:start]) is not None


def _share(text: str, grade: re.Match[str], scale: float) -> float | None:
    if _MORE.match(text, grade.end()) or ("\n" in grade.group() and _LISTED.match(text, grade.end())):
        return None
    word = grade["value"].lower().replace("−", "-").replace(",", ".")
    value = float(_WORDS.index(word) if word in _WORDS else word)
    best = 100.0 if grade["percent"] else float(grade["best"] or scale)
    return value / best if 0 <= value <= best else None
