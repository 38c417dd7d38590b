"""Matrices and vectors in the ways in which they are written: environments, lists of rows, unit vectors, transposes."""

from __future__ import annotations

import re

from rlinf_envs.math.structure import container, split_top

Cells = list[list[str]]

_MATRIX = re.compile(
    r"^\\begin\{([pbB]?matrix\*?|smallmatrix|array)\}(?:\s*\[[lcr]\])?(?:\{[lcr| ]*\})?(.*)\\end\{\1\}$", re.DOTALL
)
_ROW_END = re.compile(r"\\\\(?:\[[^\]]{0,20}\])?|\\cr(?![A-Za-z])")
_TRANSPOSED = re.compile(r"\s*\^\s*\{?\s*(?:T|\\top|\\intercal|\\prime)\s*\}?$")
_HATS = re.compile(
    r"\\(?:hat|vec|widehat)\s*\{\s*\\?([ijk])(?:math)?\s*\}|\\(?:hat|vec)\s*\\?([ijk])(?:math)?(?![A-Za-z])"
)
_TERM = re.compile(
    r"\s*([+-]?)\s*((?:\d+(?:\.\d+)?|\\frac\{\d+\}\{\d+\}|\\sqrt\{\d+\}|\d+\s*\\sqrt\{\d+\})?)\s*(?:\\cdot\s*)?([ijk])(?![A-Za-z])"
)
_LONGEST_SUM = 200


def matrix(text: str) -> Cells | None:
    """Cells by row of a matrix environment, with or without brackets around it, or of [[1, 2], [3, 4]]; else None."""
    text = text.strip()
    transposed = _TRANSPOSED.search(text)
    if transposed is not None:
        inner = text[: transposed.start()]
        if _TRANSPOSED.search(inner):
            return None
        cells = matrix(inner) or _one_row(inner)
        if cells is None or len({len(row) for row in cells}) != 1:
            return None
        return [list(column) for column in zip(*cells, strict=True)]
    if text[:1] in "([" and text[-1:] in ")]" and text[1:].lstrip().startswith(r"\begin"):
        text = text[1:-1].strip()
    result = _MATRIX.match(text)
    if result is None:
        return _rows_of_lists(text)
    rows = [row for row in _ROW_END.split(result.group(2).replace(r"\hline", "")) if row.strip()]
    return [[cell.strip() for cell in row.split("&")] for row in rows]


def vector(text: str, *, brackets: str = "([") -> list[str] | None:
    """Return the members of a vector: a matrix of one row or column, (1, 2), or 3i + 2j; None for all else."""
    cells = matrix(text)
    if cells is not None:
        if all(len(row) == 1 for row in cells):
            return [row[0] for row in cells]
        return cells[0] if len(cells) == 1 else None
    held = container(text)
    if (
        held is not None
        and held.opening in tuple(brackets)
        and {held.opening, held.closing} in ({"(", ")"}, {"[", "]"})
    ):
        return list(held.members)
    return _of_unit_vectors(text)


def _one_row(text: str) -> Cells | None:
    held = container(text)
    return [list(held.members)] if held is not None and held.ordered else None


def _rows_of_lists(text: str) -> Cells | None:
    if not (text.startswith("[[") and text.endswith("]]")):
        return None
    rows = [container(row) for row in split_top(text[1:-1])]
    if not all(row is not None and (row.opening, row.closing) == ("[", "]") for row in rows):
        return None
    cells = [list(row.members) for row in rows if row is not None]
    return cells if len({len(row) for row in cells}) == 1 else None


def _of_unit_vectors(text: str) -> list[str] | None:
    """Return the components of 3i + 2j: two, or three if k occurs. One unit vector alone would be a product."""
    text = _HATS.sub(lambda result: f" {result.group(1) or result.group(2)} ", text)
    if len(text) > _LONGEST_SUM:
        return None
    parts: dict[str, str] = {}
    position = 0
    while term := _TERM.match(text, position):
        sign, size, name = term.groups()
        if name in parts or (parts and not sign):
            return None
        parts[name] = f"{'-' if sign == '-' else ''}{size.strip() or '1'}"
        position = term.end()
    if text[position:].strip() or len(parts) < 2:
        return None
    return [parts.get(name, "0") for name in ("ijk" if "k" in parts else "ij")]
