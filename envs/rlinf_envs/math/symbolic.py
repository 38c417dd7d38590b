"""The one door to math-verify: are two expressions equal as mathematics? Unbounded in time, so it runs in a pool.

math-verify limits its own time by signals, which work in the main thread of a process only. Its limits are switched off
here; the pool ends a process that takes too long.
"""

from __future__ import annotations

import importlib
import logging
import re
from functools import lru_cache
from typing import Any

_COMMANDS = re.compile(r"\\[A-Za-z]+")
_WORDS = re.compile(r"[A-Za-z]{3,}")
_FUNCTIONS = frozenset({"sqrt", "sin", "cos", "tan", "log", "exp", "pmatrix", "bmatrix", "matrix", "array", "cases"})
_ADJACENT = re.compile(r"(?<![_\d])\d+\s+\d")
"""Two numbers side by side: a parser would run their digits together."""
_DEGREES = re.compile(r"(\d+(?:\.\d+)?)\s*\^\{\\circ\}")
_BRACKETS = re.compile(r"[()\[\]{}]")
_MAX_CHARS = 400
_MAX_DEPTH = 20
_TOLERANCE = 1e-6


class Unreadable(ValueError):
    """A response's answer that cannot be read as mathematics."""


def is_expression(text: str) -> bool:
    """Whether ``text`` may be an expression. Words are not: read as products of letters, "tea" would equal "ate"."""
    if not text or len(text) > _MAX_CHARS:
        return False
    if _ADJACENT.search(text) or _depth(text) > _MAX_DEPTH:
        return False
    return not any(word not in _FUNCTIONS for word in _WORDS.findall(_COMMANDS.sub(" ", text)))


def _depth(text: str) -> int:
    """How many brackets are open at most: the parser takes seconds to find out that hundreds are never closed."""
    deepest = depth = 0
    for bracket in _BRACKETS.findall(text):
        depth += 1 if bracket in "([{" else -1
        deepest = max(deepest, depth)
    return deepest


def equal(given: str, wanted: str, tolerance: float = 0.0) -> bool:
    """Whether two expressions are equal; two numbers also where they differ by less than ``tolerance``.

    Raises:
        Unreadable: ``given`` cannot be parsed, while ``wanted`` can.
        ImportError: math-verify is not installed.
    """
    reference = _parsed(wanted)
    if reference is None:
        return False
    expression = _parsed(given)
    if expression is None:
        raise Unreadable(given)
    if _verified(expression, reference):
        return True
    if tolerance and getattr(expression, "is_number", False) and getattr(reference, "is_number", False):
        return abs(complex(expression.evalf()) - complex(reference.evalf())) < tolerance
    # The parser takes i for a variable unless other signs of complex numbers are near.
    candidates = [_with_imaginary_unit(side) for side in (expression, reference)]
    return candidates != [expression, reference] and _verified(*candidates)


def _verified(given: Any, wanted: Any) -> bool:
    if not _library().verify(wanted, given, timeout_seconds=None, allow_set_relation_comp=False):
        return False
    return _close(given, wanted)


def _with_imaginary_unit(expression: Any) -> Any:
    sympy = importlib.import_module("sympy")
    if not isinstance(expression, sympy.Expr):
        return expression
    # By name: the parser's symbols carry assumptions, so they are not equal to a plain Symbol("i").
    return expression.subs({symbol: sympy.I for symbol in expression.free_symbols if str(symbol) == "i"})


def _close(given: Any, wanted: Any) -> bool:
    """Guards against rounding to a fixed number of places, under which all tiny numbers are equal."""
    if not (getattr(given, "is_number", False) and getattr(wanted, "is_number", False)):
        return True
    first, second = complex(given.evalf()), complex(wanted.evalf())
    if first == second or second != second:
        return True
    return abs(first - second) <= _TOLERANCE * max(abs(first), abs(second))


@lru_cache(maxsize=8192)
def _parsed(text: str) -> Any:
    """The sympy object of ``text``; None where it is no mathematics. References come again in every group: cached."""
    library = _library()
    text = _DEGREES.sub(r"(\1\\cdot\\frac{\\pi}{180})", text)
    found = library.parse(
        f"${text}$",
        extraction_config=[library.LatexExtractionConfig()],
        fallback_mode="no_fallback",
        extraction_mode="first_match",
        parsing_timeout=None,
    )
    return found[0] if found and not isinstance(found[0], str) else None


@lru_cache(maxsize=1)
def _library() -> Any:
    try:
        library = importlib.import_module("math_verify")
    except ImportError as error:
        raise ImportError("checking mathematical answers needs math-verify: pip install 'math-verify>=0.9'") from error
    for name in ("math_verify.grader", "math_verify.parser"):
        # It warns that its time limits are off, which is intended, and logs every expression that it cannot read.
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return library
