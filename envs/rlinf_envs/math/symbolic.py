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

from rlinf.base.packages import absent

_COMMANDS = re.compile(r"\\[A-Za-z]+")
_WORDS = re.compile(r"[A-Za-z]{3,}")
_FUNCTIONS = frozenset({"sqrt", "sin", "cos", "tan", "log", "exp", "pmatrix", "bmatrix", "matrix", "array", "cases"})
_ADJACENT = re.compile(r"(?<![_\d])\d+\s+\d")
"""Two numbers side by side: a parser would run their digits together."""
_DEGREES = re.compile(r"(\d+(?:\.\d+)?)\s*\^\{\\circ\}")
_BRACKETS = re.compile(r"[()\[\]{}]")
_MAX_CHARS = 400
_MAX_DEPTH = 20
_DIGITS = 120
_EXACT = 1e-100
"""How much two exact numbers may differ in relation to the larger: what arithmetic of _DIGITS digits leaves over."""
_ROUNDED = 1e-6
"""The same for an exact answer to a reference that is written as a decimal, and so rounded."""
_GAMMA = re.compile(r"\\Gamma(?![A-Za-z]|\s*\()")
"""The letter; in front of a bracket it is the function."""
_CAPITAL_I = re.compile(r"(?<![A-Za-z\\])I(?![A-Za-z])")


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


def equal(given: str, requested: str, tolerance: float = 0.0) -> bool:
    """Return whether two expressions are equal; two numbers also if they differ by less than ``tolerance``.

    Raises:
        Unreadable: ``given`` cannot be parsed, while ``requested`` can.
        ImportError: math-verify is not installed.
    """
    reference = _parsed(requested)
    if reference is None:
        return False
    expression = _parsed(given)
    if expression is None:
        raise Unreadable(given)
    if _verified(expression, reference):
        return True
    if tolerance and getattr(expression, "is_number", False) and getattr(reference, "is_number", False):
        return bool(abs((expression - reference).evalf()) < tolerance)
    # The parser takes i for a variable unless other signs of complex numbers are near.
    candidates = [_with_imaginary_unit(side) for side in (expression, reference)]
    return candidates != [expression, reference] and _verified(*candidates)


def _verified(given: Any, requested: Any) -> bool:
    exact = (_exact(requested), _exact(given))  # in doubles 0.1 + 0.2 is not 0.3
    if not _library().verify(*exact, timeout_seconds=None, allow_set_relation_comp=False):
        return _same_solutions(given, requested)
    return _close(given, requested)


def _same_solutions(given: Any, requested: Any) -> bool:
    """Whether two inequalities in the same unknown have the same solutions: 2x > 6 and x > 3."""
    sympy = importlib.import_module("sympy")
    inequalities = (sympy.StrictGreaterThan, sympy.StrictLessThan, sympy.GreaterThan, sympy.LessThan)
    if not (isinstance(given, inequalities) and isinstance(requested, inequalities)):
        return False
    unknowns = given.free_symbols
    if len(unknowns) != 1 or unknowns != requested.free_symbols:
        return False
    try:
        return bool(given.doit().as_set() == requested.doit().as_set())
    except (NotImplementedError, TypeError, ValueError, AttributeError):
        return False


def _with_imaginary_unit(expression: Any) -> Any:
    sympy = importlib.import_module("sympy")
    if not isinstance(expression, sympy.Expr):
        return expression
    # By name: the parser's symbols carry assumptions, so they are not equal to a plain Symbol("i").
    return expression.subs({symbol: sympy.I for symbol in expression.free_symbols if str(symbol) == "i"})


def _close(given: Any, requested: Any) -> bool:
    """Whether two numbers are equal to :data:`_DIGITS` digits; True for all else.

    math-verify rounds to a fixed number of digits, so all tiny numbers are equal to it. The arithmetic here has
    exponents without bounds: doubles would make 1/2004! and 1/2006! the same 0.
    """
    if not (getattr(given, "is_number", False) and getattr(requested, "is_number", False)):
        return True
    size = max(abs(side.evalf(_DIGITS)) for side in (_exact(given), _exact(requested)))
    difference = abs((_exact(given) - _exact(requested)).evalf(_DIGITS))
    if not (size.is_comparable and difference.is_comparable):
        return True
    return bool(difference <= (_ROUNDED if _decimals(requested) and not _decimals(given) else _EXACT) * size)


def _decimals(expression: Any) -> set[Any]:
    results: set[Any] = expression.atoms(importlib.import_module("sympy").Float)
    return results


def _exact(expression: Any) -> Any:
    """``expression`` with its decimals as the fractions that they write: 0.1 is 1/10."""
    sympy = importlib.import_module("sympy")
    return expression.xreplace({decimal: sympy.Rational(str(decimal)) for decimal in _decimals(expression)})


@lru_cache(maxsize=8192)
def _parsed(text: str) -> Any:
    """Parse ``text`` into a sympy object; None if it is no mathematics.

    References come again in every group: cached."""
    text = _GAMMA.sub(r"G_{amma}", text)
    text = _DEGREES.sub(r"(\1\\cdot\\frac{\\pi}{180})", text)
    try:
        result = _read(text)
    except ImportError:
        raise
    except Exception:  # the parser raises whatever its grammar runs into
        return None
    return None if isinstance(result, str) else result


def _read(text: str) -> Any:
    """Parse ``text`` into a sympy object as math-verify does, but keep the case of letters: x is not X.

    ``math_verify.parse`` has no setting for the case, so this calls the two functions that it is made of.
    """
    library = _library()
    parser = importlib.import_module("math_verify.parser")
    reader = importlib.import_module("latex2sympy2_extended.latex2sympy2")
    normalization = importlib.import_module("latex2sympy2_extended.math_normalization")
    normal = normalization.normalize_latex(text, config=library.LatexExtractionConfig().normalization_config)
    result = reader.latex2sympy(
        normal,
        is_real=not parser.should_treat_as_complex(normal),
        convert_degrees=False,
        normalization_config=None,
        conversion_config=reader.ConversionConfig(lowercase_symbols=False),
    )
    return _with_case(result, imaginary=_CAPITAL_I.search(text) is None)


def _with_case(result: Any, *, imaginary: bool) -> Any:
    """Give ``result`` with capital letters as symbols that differ from small ones in more than their case.

    The grader of math-verify compares lone symbols without their case. ``imaginary``: whether I is the imaginary unit;
    the parser takes the capital letter for it, while mathematics writes i.
    """
    sympy = importlib.import_module("sympy")
    if not hasattr(result, "subs"):
        return result
    renamed = {
        symbol: sympy.Symbol(f"{symbol.name}'", real=symbol.is_real)
        for symbol in result.free_symbols
        if symbol.name != symbol.name.lower()
    }
    if not imaginary:
        renamed[sympy.I] = sympy.Symbol("I'", real=True)
    return result.subs(renamed) if renamed else result


@lru_cache(maxsize=1)
def _library() -> Any:
    try:
        library = importlib.import_module("math_verify")
    except ImportError as error:
        raise absent("math_verify", "checking mathematical answers") from error
    for name in ("math_verify.grader", "math_verify.parser"):
        # It warns that its time limits are off, which is intended, and logs every expression that it cannot read.
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return library
