"""Parsing JSON that others wrote: models, servers, data files.

Python's parser goes one call deeper with each bracket and gives up at the interpreter's recursion limit. There any code
that runs by itself (a finaliser, a signal handler) fails as well, so nesting is measured before the text is parsed.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from contextlib import suppress
from typing import Any

_MESSAGES = re.compile(r"\s*\[\s*\{\s*['\"](?:role|from|content|value)['\"]\s*:")
_BETWEEN = re.compile(r"[\s,;]*")
_GOES_ON = re.compile(r"\s*[\]},:\"]")
MAX_DEPTH = 200
"""Brackets within brackets: no data set, tool call or answer nests as deeply."""
# A text that never ends goes to the end, so that each character is read once.
_QUOTED = re.compile(rb'"[^"\\]*(?:\\.?[^"\\]*)*(?:"|\Z)', re.DOTALL)
_OPENING, _CLOSING = b"[{", b"]}"
_NO_BRACKET = bytes(set(range(256)) - set(_OPENING + _CLOSING))


class TooDeep(ValueError):
    """JSON whose brackets are nested too deeply."""


class RepeatedKeys(dict[str, Any]):
    """An object of JSON that has keys twice, of which the last counts."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.names = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]


def parse_json(text: str | bytes) -> Any:
    """Parse the value of a JSON text. Objects with a key twice are :class:`RepeatedKeys`.

    Raises:
        ValueError: it is no JSON, no UTF-8, has numbers of over 4,300 digits, or is nested too deeply (TooDeep).
    """
    check_depth(text)
    return json.loads(text, object_pairs_hook=_object)


def json_or_text(value: Any) -> Any:
    """Return the value of a JSON text; all else as it is."""
    try:
        return parse_json(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    return result if len(result) == len(pairs) else RepeatedKeys(pairs)


_LENIENT = json.JSONDecoder(object_pairs_hook=_object, strict=False)
"""Texts may have line breaks."""


def listed_messages(value: Any) -> Any:
    """Return the chat messages that a text holds as JSON, or as Python writes a list; all else as it is.

    A table has no lists: messages stand in its cells as text.

    Raises:
        ValueError: a text that begins as such a list cannot be read.
    """
    if not isinstance(value, str) or _MESSAGES.match(value) is None:
        return value
    try:
        return written_value(value)
    except TooDeep:
        raise
    except ValueError:
        raise ValueError("chat messages as a text that is no JSON: write them with json.dumps") from None


def written_value(text: str) -> Any:
    """Parse a value that a text holds as JSON, or as Python writes it.

    Raises:
        ValueError: it is neither, or nested too deeply (TooDeep).
    """
    try:
        return parse_json(text)
    except TooDeep:
        raise
    except ValueError:
        pass
    try:
        return literal(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise ValueError("neither JSON nor a value of Python") from None


def literal(node: ast.expr) -> Any:
    """Return the value of Python's syntax that JSON can hold; true, false and null are names of values too.

    Raises:
        ValueError: it is none (a name, a set, a calculation); the message names its position.
    """
    try:
        return json.loads(json.dumps(ast.literal_eval(_JsonNames().visit(node))))
    except (ValueError, TypeError, MemoryError, RecursionError):
        raise ValueError(f"no value that JSON can hold: line {node.lineno} column {node.col_offset + 1}") from None


class _JsonNames(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        names = {"true": True, "false": False, "null": None}
        return ast.copy_location(ast.Constant(names[node.id]), node) if node.id in names else node


def json_at_start(text: str) -> str:
    """Return the JSON that a text begins with; empty if it begins with none, or with more than one value."""
    with suppress(ValueError):
        check_depth(text)
        _, end = _LENIENT.raw_decode(text, len(text) - len(text.lstrip()))
        return "" if _GOES_ON.match(text, end) else text[:end]
    return ""


def written_values(text: str) -> list[Any]:
    """Parse values that follow each other, with blanks, commas or semicolons between; those of a list are read as such.

    >>> written_values('{"a": 1}; {"a": 2}'), written_values("[{'a': True,}]")
    ([{'a': 1}, {'a': 2}], [{'a': True}])

    Raises:
        ValueError: something in between is neither JSON nor a value of Python, or nested too deeply (TooDeep).
    """
    try:
        value = written_value(text)
        return value if isinstance(value, list) else [value]
    except TooDeep:
        raise
    except ValueError:
        results, end = [], _BETWEEN.match(text).end()  # type: ignore[union-attr]  # it matches nothing too
        while end < len(text):
            value, end = _LENIENT.raw_decode(text, end)
            results.append(value)
            end = _BETWEEN.match(text, end).end()  # type: ignore[union-attr]
        if not results:
            raise ValueError("no value") from None
        return results


def check_depth(text: str | bytes) -> None:
    """Raise TooDeep if brackets of ``text`` are nested more than 200 times."""
    content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if sum(content.count(bracket) for bracket in (b"[", b"{")) <= MAX_DEPTH:
        return
    # The first count takes brackets within texts for structure; only where it is large are texts removed.
    if _depth(content) > MAX_DEPTH and _depth(_QUOTED.sub(b"", content)) > MAX_DEPTH:
        raise TooDeep("brackets are nested too deeply")


def _depth(content: bytes) -> int:
    import numpy as np  # hardly any text comes here, and commands that read a small file start without it

    brackets = np.frombuffer(content.translate(None, _NO_BRACKET), np.uint8)
    steps = np.where(np.isin(brackets, np.frombuffer(_OPENING, np.uint8)), np.int8(1), np.int8(-1))
    return int(np.cumsum(steps, dtype=np.int64).max(initial=0))
