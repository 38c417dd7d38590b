"""Cells of typed tables as their writer meant them: classes by name, numbers of 32 bits without a binary remainder."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from typing import Any

Change = Callable[[Any], Any]


def cell_changes(arrow: Any, schema: Any) -> dict[str, Change]:
    """Column -> function of its cells, for the columns whose stored values are not what was written.

    ``schema``: of Arrow. Its metadata has the features of the ``datasets`` library, if that wrote the table. A
    ``ClassLabel`` is stored as a number, and its cells become the names. A float32 of 0.1 becomes 0.1, not
    0.10000000149011612. Lists of numbers stay: they are vectors.
    """
    described = _features(schema)
    changes = {field.name: _change(arrow, field.type, described.get(field.name)) for field in schema}
    return {name: change for name, change in changes.items() if change is not None}


def changed(row: Mapping[str, Any], changes: Mapping[str, Change]) -> Mapping[str, Any]:
    """Return ``row`` with the changed cells; null stays null."""
    if not changes:
        return row
    return {name: _unless_null(changes[name], cell) if name in changes else cell for name, cell in row.items()}


def _features(schema: Any) -> Mapping[str, Any]:
    written = (schema.metadata or {}).get(b"huggingface")
    try:
        features = json.loads(written)["info"]["features"] if written else {}
    except (ValueError, KeyError, TypeError):
        return {}
    return features if isinstance(features, Mapping) else {}


def _change(arrow: Any, kind: Any, feature: Any) -> Change | None:
    """Return what cells of the Arrow type ``kind`` become; None if they stay."""
    types = arrow.types
    if isinstance(feature, Mapping) and feature.get("_type") == "ClassLabel":
        names = feature.get("names") or ()
        return lambda number: names[number] if 0 <= number < len(names) else None
    if types.is_float32(kind) or types.is_float16(kind):
        np = importlib.import_module("numpy")
        narrow = np.float32 if types.is_float32(kind) else np.float16
        return lambda number: float(str(narrow(number)))
    if types.is_struct(kind):
        inside = feature if isinstance(feature, Mapping) else {}
        inner = {field.name: _change(arrow, field.type, inside.get(field.name)) for field in kind}
        known = {name: change for name, change in inner.items() if change is not None}
        return (lambda cell: changed(cell, known)) if known else None
    return None


def _unless_null(change: Change, cell: Any) -> Any:
    return None if cell is None else change(cell)
