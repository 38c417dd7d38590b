"""Values of several unknowns: "x = 1, y = 2", "(x, y) = (1, 2)", a system in cases, and the tuple that they are."""

from __future__ import annotations

import re

from rlinf_envs.math.relations import assignment
from rlinf_envs.math.structure import container, split_top

_CASES = re.compile(
    r"^(?:\\\{)?\s*\\begin\{(cases|aligned|align\*?|array|gathered)\}(?:\{[lcr| ]*\})?(.*)\\end\{\1\}$", re.DOTALL
)
_AND = re.compile(r",?\s*(?<![A-Za-z\\])and(?![A-Za-z])\s*|\s*\\(?:land|wedge)(?![A-Za-z])\s*")
_OR = re.compile(r",?\s*(?<![A-Za-z\\])or(?![A-Za-z])\s*|\s*\\(?:lor|vee)(?![A-Za-z])\s*")
_NAME = re.compile(r"[A-Za-z](?:_\{?\w+\}?|')?|\\[a-z]+(?:_\{?\w+\}?)?")
_INDEXED = re.compile(r"([A-Za-z])_\{?(\d)\}?")
_MAX_VALUES = 20


def named_values(text: str) -> dict[str, str] | None:
    """Value by name, in the order in which they are written; None unless there are two names or more."""
    system = _CASES.match(text)
    parts = re.split(r"\\\\", system.group(2).replace("&", "")) if system else [text]
    values: dict[str, str] = {}
    for piece in [piece for part in parts for piece in split_top(_AND.sub(",", part), ",;") if piece]:
        for name, value in _pairs(piece):
            if name in values or not value or len(values) == _MAX_VALUES:
                return None
            values[name] = value
        if not values:
            return None
    return values if len(values) > 1 and "" not in values else None


def _pairs(piece: str) -> list[tuple[str, str]]:
    """Return the named values of "x = 1" and of "(x, y) = (1, 2)"; an empty name if there is none."""
    sides = piece.split("=")
    if len(sides) != 2:
        return [("", "")]
    names, values = container(sides[0].strip()), container(sides[1].strip())
    if names is not None and values is not None and len(names.members) == len(values.members):
        return [
            (name if _NAME.fullmatch(name) else "", value)
            for name, value in zip(names.members, values.members, strict=True)
        ]
    result = assignment(piece.strip())
    return [result if result is not None and _NAME.fullmatch(result[0]) else ("", "")]


def as_tuple(values: dict[str, str], order: list[str]) -> str:
    """Write the values as the tuple that they are in this order of the names."""
    return "(" + ", ".join(values[name] for name in order) + ")"


def alternatives(text: str) -> list[dict[str, str]] | None:
    """Split "x = 1, y = 2 or x = 3, y = 4" into its solutions, which have the same names; None for all else."""
    results = [named_values(part.strip(" ,;")) for part in _OR.split(text)]
    solutions = [values for values in results if values is not None]
    alike = len(solutions) == len(results) and len({frozenset(values) for values in solutions}) == 1
    return solutions if alike else None


def roots(values: dict[str, str]) -> list[str] | None:
    """Return the values of x_1, x_2, ..., several values of one unknown; None if the names differ in more."""
    names = [_INDEXED.fullmatch(name) for name in values]
    if not all(names) or len({name.group(1) for name in names if name}) != 1:
        return None
    return list(values.values())
