"""Typed configuration back to plain data, to YAML, and to a list of differences."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass

import yaml

from rlinf.schema import Sections, keys

# libyaml's emitter writes the same text in a fifth of the time; wheels of PyYAML have it.
_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def to_mapping(config: Sections) -> dict[str, object]:
    """Plain nested data that :func:`rlinf.config.load_mapping` reads back to an equal configuration."""
    plain = _plain(config)
    assert isinstance(plain, dict)
    return plain


def digest(config: Sections) -> str:
    """Return a digest of all values, by which a changed configuration is recognised."""
    return hashlib.sha256(repr(to_mapping(config)).encode()).hexdigest()


def to_yaml(config: Sections) -> str:
    """Write the same as YAML text, in the order of the schema."""
    return block_yaml(to_mapping(config))


def block_yaml(plain: object) -> str:
    """Plain data as YAML with a key to a line, in the order given."""
    return str(yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))


def diff(a: Sections, b: Sections) -> list[str]:
    """List one line per key that differs: ``rollout.batch_size: 32 -> 64``; empty when both are equal."""
    return differences(flat(a), flat(b))


def differences(left: Mapping[str, str], right: Mapping[str, str]) -> list[str]:
    """List the same differences for the results of :func:`flat`."""
    lines = []
    keys = dict.fromkeys([*left, *right])
    for key in keys:
        if "{}" in (left.get(key), right.get(key)) and any(other.startswith(f"{key}.") for other in keys):
            continue  # the lines of its entries show it
        before, after = left.get(key, "(absent)"), right.get(key, "(absent)")
        if before != after:
            lines.append(f"{key}: {before} -> {after}")
    return lines


def flat(config: Sections) -> dict[str, str]:
    """Every dotted key with its value as YAML text."""
    return _flat(to_mapping(config), "")


def at(plain: object, path: Sequence[str]) -> object:
    """Return the value at a path of plain data (list items by their number); None if there is none."""
    for step in path:
        if isinstance(plain, dict):
            plain = plain.get(step)
        elif isinstance(plain, list) and step.isdecimal() and int(step) < len(plain):
            plain = plain[int(step)]
        else:
            return None
    return plain


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name)) for item in keys(value)}
    if isinstance(value, dict):
        return {name: _plain(child) for name, child in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(child) for child in value]
    return value


def _flat(value: object, prefix: str) -> dict[str, str]:
    if isinstance(value, dict) and value:
        flat: dict[str, str] = {}
        for name, child in value.items():
            flat.update(_flat(child, f"{prefix}{name}."))
        return flat
    text = _flow(value) if isinstance(value, dict | list) else _scalar(value)
    return {prefix.rstrip("."): text}


def _flow(value: object) -> str:
    text = str(yaml.dump(value, Dumper=_Dumper, default_flow_style=True, width=10_000)).strip()
    return text.removesuffix("...").strip()


# A configuration has over 300 scalars, most of which are those of the one before.
_scalar = functools.lru_cache(maxsize=4096, typed=True)(_flow)
