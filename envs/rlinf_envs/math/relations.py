"""Assignments ("x = 5") and inequalities, brought to values and intervals."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from rlinf_envs.arithmetic import exact_value, from_latex
from rlinf_envs.math.structure import Container, container

_VARIABLE = r"(?:[A-Za-z]|\\[a-z]+)(?:_\{?\w+\}?|')?(?:\s*\(\s*[A-Za-z]\s*\))?"
_ASSIGNMENT = re.compile(
    rf"^({_VARIABLE}|\\angle\s*[A-Z]+|[A-Z]{{2,3}}|\(\s*[A-Za-z](?:\s*,\s*[A-Za-z])+\s*\))\s*(?:=|\\approx(?![A-Za-z]))\s*(.+)$",
    re.DOTALL,
)
_MEMBER = re.compile(rf"^{_VARIABLE}\s*\\in(?![A-Za-z])\s*(.+)$", re.DOTALL)
_RELATION = re.compile(r"(\\le(?![A-Za-z])|\\ge(?![A-Za-z])|<|>)")
_UNION = re.compile(r"\\cup(?![A-Za-z])|(?<![A-Za-z\\])(?:or|U)(?![A-Za-z])|\\lor(?![A-Za-z])")
_BOTH = re.compile(r"(\s*,?\s*(?<![A-Za-z\\])and(?![A-Za-z])|\\(?:land|wedge|cap)(?![A-Za-z])|,)")
_REALS = r"\\mathbb\s*\{?\s*R\s*\}?"
_SET_OF = re.compile(rf"^\\\{{\s*{_VARIABLE}(?:\s*\\in\s*{_REALS})?\s*(?:\\mid(?![A-Za-z])|\||:)(.+)\\\}}$", re.DOTALL)
_BUT = re.compile(
    rf"^(?:{_REALS}\s*(?:\\setminus(?![A-Za-z])|\\|-)\s*\\\{{(.+)\\\}}|{_VARIABLE}\s*\\ne(?![A-Za-z])(.+))$", re.DOTALL
)
_LONE_VARIABLE = re.compile(rf"^{_VARIABLE}$")


def assignment(text: str) -> tuple[str, str] | None:
    """(variable, value) of "x = 5", "f(x) = 2x" and "x = 2 + 3 = 5" (the last value); None for other text."""
    result = _ASSIGNMENT.match(text)
    if result is None:
        return None
    return re.sub(r"\s", "", result.group(1)), result.group(2).rsplit("=", 1)[-1].strip()


def without_member(text: str) -> str:
    """``[1, 2]`` of "x \\in [1, 2]", and 2 of a set that has only this member."""
    result = _MEMBER.match(text)
    text = result.group(1).strip() if result else text
    held = container(text) if _SET_OF.match(text) is None else None
    return held.members[0] if held is not None and len(held.members) == 1 else text


def intervals(text: str) -> list[Container] | None:
    """Read ``text`` as a union of intervals, also of a set of numbers with a condition; else None.

    Intervals are written as such, or as inequalities in one variable, or by the points that they leave out.
    """
    described = _SET_OF.match(text)
    text = described.group(1).strip() if described else text
    but = _BUT.match(text)
    if but is not None:
        return _between(_in_order((but.group(1) or but.group(2)).split(",")))
    parts = [_interval(without_member(part.strip())) for part in _UNION.split(text)]
    results = [part for part in parts if part is not None]
    if results and len(results) == len(parts):
        return results
    return _both(text)


def _in_order(points: Sequence[str]) -> list[str] | None:
    """Return the points in their order; None if one has no exact value."""
    values = [exact_value(from_latex(point.strip())) for point in points]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return [point.strip() for _, point in sorted(zip(known, points, strict=True))]


def _between(points: list[str] | None) -> list[Container] | None:
    """Return the intervals that lie between the points, and below and above them."""
    if points is None:
        return None
    return [Container("(", ")", pair) for pair in itertools.pairwise([r"-\infty", *points, r"\infty"])]


def _both(text: str) -> list[Container] | None:
    """Return the interval of "x > 3 and x < 5", in words or with a comma; None for all else.

    "x < 3, x > 5" are two half-lines, since no number is in both. "x < 3 and x > 5" leaves a doubt: None.
    """
    joined = _BOTH.split(text)
    pieces = [piece.strip() for piece in joined[::2]]
    if len(pieces) != 2 or len({name for piece in pieces for name in _lone_names(piece)}) != 1:
        return None
    first, second = (_interval(piece) for piece in pieces)
    if first is None or second is None:
        return None
    lower, upper = (second, first) if first.members[0] == r"-\infty" else (first, second)
    if upper.members[0] != r"-\infty" or lower.members[1] != r"\infty":
        return None
    low, high = exact_value(from_latex(lower.members[0])), exact_value(from_latex(upper.members[1]))
    if low is None or high is None:
        return None
    if low < high:
        return [Container(lower.opening, upper.closing, (lower.members[0], upper.members[1]))]
    return [upper, lower] if joined[1].strip() == "," else None


def _lone_names(relation: str) -> list[str]:
    return [side.strip() for side in _RELATION.split(relation)[::2] if _is_variable(side.strip())]


def has_inequality(text: str) -> bool:
    """Whether a relation sign stands in ``text``."""
    return _RELATION.search(text) is not None


def _interval(text: str) -> Container | None:
    written = container(text)
    if written is not None:
        return written if len(written.members) == 2 and written.opening in "([" else None
    pieces = _RELATION.split(text)
    if len(pieces) == 3:
        left, sign, right = (piece.strip() for piece in pieces)
        if _is_variable(right):
            left, sign, right = right, _flip(sign), left
        return _half_line(right, sign) if _is_variable(left) and not _is_variable(right) else None
    if len(pieces) == 5:
        low, first, middle, second, high = (piece.strip() for piece in pieces)
        if not _is_variable(middle) or (first in (">", r"\ge")) != (second in (">", r"\ge")):
            return None
        if first in (">", r"\ge"):
            low, first, second, high = high, _flip(second), _flip(first), low
        return Container("[" if first == r"\le" else "(", "]" if second == r"\le" else ")", (low, high))
    return None


def _half_line(bound: str, sign: str) -> Container:
    if sign in ("<", r"\le"):
        return Container("(", "]" if sign == r"\le" else ")", (r"-\infty", bound))
    return Container("[" if sign == r"\ge" else "(", ")", (bound, r"\infty"))


def _flip(sign: str) -> str:
    return {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}[sign]


def _is_variable(text: str) -> bool:
    return _LONE_VARIABLE.match(text) is not None and text not in (r"\infty", r"\pi")
