"""``{name}`` and the like in paths: one function fills them in, wherever a path is needed."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping

from rlinf.base.errors import UserError

_WIDEST = 100


class PlaceholderError(UserError):
    """A path with a placeholder that does not exist, or with a brace that does not close; the message names it."""


def expand(template: str, values: Mapping[str, object]) -> str:
    """Replace each ``{name}`` in the template by the value of that name; format specifications work as in Python.

    >>> expand("runs/{name}_{seed:02d}", {"name": "first", "seed": 3})
    'runs/first_03'
    """
    known = ", ".join(f"{{{name}}}" for name in values)
    try:
        parsed = list(string.Formatter().parse(template))
        requested = [name for _, name, _, _ in parsed if name is not None]
    except ValueError as error:
        raise PlaceholderError(f"{template!r} is not a template: {error}; it may hold {known}") from None
    widths = [int(digits) for _, _, spec, _ in parsed for digits in re.findall(r"\d+", spec or "")[:9]]
    if any(width > _WIDEST for width in widths):
        raise PlaceholderError(f"{template!r} needs over {_WIDEST} characters in one placeholder")
    unknown = [name for name in requested if name not in values]
    if unknown:
        listed = ", ".join(f"{{{name}}}" for name in unknown)
        raise PlaceholderError(f"{template!r} has the unknown placeholder {listed}; there are {known}")
    try:
        return template.format(**values)
    except (ValueError, KeyError, IndexError) as error:
        raise PlaceholderError(f"{template!r} cannot be filled in: {error}") from None
