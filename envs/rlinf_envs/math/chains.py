"""Chains of equations, such as "x = 10/2 = 5": all members that have a value must have the same one.

Otherwise a response could name several answers, "x = 4 = 5", and be right about the last. Left-hand sides that name
the unknown ("x", "f(2)", "AB^2") have no value of their own and are not compared.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Protocol

from rlinf_envs.arithmetic import exact_value, from_latex
from rlinf_envs.math.quantity import Quantity, quantity, same_quantity
from rlinf_envs.math.relations import has_inequality
from rlinf_envs.math.structure import bare_list, split_top
from rlinf_envs.math.symbolic import Unreadable

_OTHER_RELATION = re.compile(r"[!:]=|\\ne(?![A-Za-z])|\\equiv(?![A-Za-z])")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_LETTER = re.compile(r"[A-Za-z]")
_COMPARABLE = re.compile(
    r"(?:[\d\s+\-*/^().{}]|(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])|\\(?:frac|sqrt|cdot|times|div|pi)(?![A-Za-z]))+"
)
"""Sums, products, powers, roots and single letters: what algebra can be trusted to compare. All else is left alone."""
_DECIMALS = re.compile(r"\d\.(\d+)(?![\d.])")


class Equal(Protocol):
    """Decides whether two expressions are equal; may raise :class:`~rlinf_envs.math.symbolic.Unreadable`."""

    def __call__(self, given: str, requested: str, tolerance: float = 0.0) -> bool:
        """``tolerance``: two numbers are also equal if they differ by less."""


def chain(text: str) -> list[str] | None:
    """Split at the equals signs, into two members at least; None for lists, inequalities and text without equation."""
    if "=" not in text or _OTHER_RELATION.search(text) or has_inequality(text) or bare_list(text) is not None:
        return None
    members = split_top(text, "=")
    return members if len(members) > 1 and all(members) else None


def holds(members: list[str], equal: Equal) -> bool:
    """Return whether no member contradicts the last one. A decimal may be rounded in its last digit: "10/3 = 3.33"."""
    return not any(_contradicts(member, members[-1], equal) for member in members[:-1])


def _contradicts(member: str, value: str, equal: Equal) -> bool:
    decimals = [len(result.group(1)) for result in (_DECIMALS.search(member), _DECIMALS.search(value)) if result]
    tolerance = Fraction(1, 10 ** min(decimals)) if decimals else Fraction(0)
    first, second = quantity(member), quantity(value)
    if first is not None and second is not None:
        return not _alike(first, second, tolerance)
    exact, requested = exact_value(from_latex(member)), exact_value(from_latex(value))
    if exact is not None and requested is not None:
        return exact != requested and abs(exact - requested) >= tolerance
    if not (_comparable(member) and _comparable(value) and _letters(member) <= _letters(value)):
        return False
    try:
        return not equal(member, value, float(tolerance))
    except Unreadable:
        return False


def _alike(first: Quantity, second: Quantity, tolerance: Fraction) -> bool:
    if same_quantity(first, second) or (first.unit and second.unit and first.unit != second.unit):
        return True
    return first.percent == second.percent and abs(first.value - second.value) < tolerance


def _comparable(text: str) -> bool:
    return ".." not in text and _COMPARABLE.fullmatch(text) is not None


def _letters(text: str) -> set[str]:
    return set(_LETTER.findall(_COMMAND.sub(" ", text)))
