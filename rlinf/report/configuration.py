"""The resolved configuration as rows, with what differs from the defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlinf.config import Config, to_mapping


def config_rows(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row a key: ``key``, ``value``, ``default`` and whether they differ.

    Read from plain data, so that a run of another version (whose keys this one may not have) has its page too.
    """
    defaults = dict(_flat(to_mapping(Config()), ""))
    rows = []
    for key, value in _flat(config, ""):
        known = key in defaults
        rows.append(
            {
                "key": key,
                "value": _text(value),
                "default": _text(defaults[key]) if known else "",
                "changed": not known or defaults[key] != value,
            }
        )
    return rows


def _flat(value: object, prefix: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping) and value:
        for name, child in value.items():
            yield from _flat(child, f"{prefix}{name}.")
    else:
        yield prefix.removesuffix("."), value


def _text(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
