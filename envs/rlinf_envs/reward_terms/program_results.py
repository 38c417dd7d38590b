"""Comparison of what a program prints or returns with what is right."""

from __future__ import annotations

import math
import re
from typing import Any

_TOLERANCE = 1e-6
"""Of numbers that the test writes with decimals, relative and absolute."""


def same_output(output: str, requested: str) -> bool:
    """Whether two outputs have the same lines, but for blanks at their ends and the last digits of decimal numbers.

    >>> same_output("0.30000000000000004 \\n", "0.3"), same_output("2.0", "2")
    (True, False)
    """
    lines, others = ([line.rstrip() for line in text.strip().splitlines()] for text in (output, requested))
    return len(lines) == len(others) and all(
        line == other or _same_numbers(line.split(), other.split()) for line, other in zip(lines, others, strict=True)
    )


def same_value(value: Any, requested: Any) -> bool:
    """Whether two values of JSON are equal, but for the last digits of a float.

    >>> same_value([1, 0.1 + 0.2], [1, 0.3]), same_value({"a": None}, {"a": 0}), same_value("1", 1)
    (True, False, False)
    """
    if isinstance(value, list) and isinstance(requested, list):
        return len(value) == len(requested) and all(map(same_value, value, requested))
    if isinstance(value, dict) and isinstance(requested, dict):
        return value.keys() == requested.keys() and all(same_value(value[key], requested[key]) for key in requested)
    if {type(value), type(requested)} in ({float}, {int, float}):
        return bool(value == requested or abs(value - requested) <= _TOLERANCE * max(1.0, abs(requested)))
    return bool(value == requested)


def _same_numbers(words: list[str], others: list[str]) -> bool:
    return len(words) == len(others) and all(
        word == other or _near(word, other) for word, other in zip(words, others, strict=True)
    )


def _near(word: str, requested: str) -> bool:
    if not re.fullmatch(r"[-+]?\d*\.\d+(?:[eE][-+]?\d+)?|[-+]?\d+[eE][-+]?\d+", requested):
        return False
    try:
        value = float(word)
    except ValueError:
        return False
    return math.isclose(value, float(requested), rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
