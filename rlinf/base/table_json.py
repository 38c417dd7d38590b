"""Tables as one JSON object: pandas' `to_json` with another orient than "records", its `to_dict("list")`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def orientation(content: Any) -> str | None:
    """Return the ``orient`` of pandas' ``to_json`` that ``content`` has; None for "records" and for all else.

    "list" is that of ``to_dict``: columns of equally many values, none an object. "columns" and "index" are known by
    their row numbers, so by the index that pandas gives a table by itself.

    >>> orientation({"question": {"0": "1+1?"}, "answer": {"0": "2"}}), orientation([["1+1?", "2"]])
    ('columns', 'values')
    """
    if isinstance(content, Sequence) and not isinstance(content, str):
        rows = [isinstance(row, list) and bool(row) and not isinstance(row[0], Mapping) for row in content]
        return "values" if rows and all(rows) else None
    if not isinstance(content, Mapping) or not content:
        return None
    if content.keys() <= {"columns", "index", "data"} and {"columns", "data"} <= content.keys():
        listed = all(isinstance(part, list) for part in (content["columns"], content["data"]))
        return "split" if listed and all(isinstance(row, list) for row in content["data"]) else None
    parts = list(content.values())
    if len(parts) > 1 and all(isinstance(part, list) and len(part) == len(parts[0]) > 1 for part in parts):
        return None if any(isinstance(value, Mapping) for part in parts for value in part) else "list"
    if not all(isinstance(part, Mapping) and part and part.keys() == parts[0].keys() for part in parts):
        return None
    if all(str(number).isdecimal() for number in parts[0]):
        return "columns"
    return "index" if all(str(number).isdecimal() for number in content) else None


def rows_of(content: Any, orient: str) -> list[dict[str, Any]]:
    """Return the rows of a table in one of these orients; ValueError for "values", which names no columns."""
    if orient == "list":
        return [dict(zip(content, row, strict=True)) for row in zip(*content.values(), strict=True)]
    if orient == "columns":
        numbers = next(iter(content.values()))
        return [{name: column[number] for name, column in content.items()} for number in numbers]
    if orient == "index":
        return [dict(row) for row in content.values()]
    if orient == "split":
        # Columns of several levels are lists.
        names = [".".join(map(str, name)) if isinstance(name, list) else str(name) for name in content["columns"]]
        return [dict(zip(names, row, strict=True)) for row in content["data"]]
    raise ValueError(f"a table in the orient {orient!r} of pandas names no columns")
