"""The names of all keys with their facts, and the nearest of them to a misspelt one."""

from __future__ import annotations

import difflib
import functools
import itertools
import typing
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass, replace
from typing import Any

from rlinf.schema import Sections, keys
from rlinf.schema.key import KeyFacts


@functools.cache
def hints(section: type) -> dict[str, object]:
    """Return the resolved type of every field of a section, in the order of the file."""
    resolved = typing.get_type_hints(section)
    return {item.name: resolved[item.name] for item in keys(section)}


@functools.cache
def leaves() -> tuple[str, ...]:
    """All dotted keys that hold a value."""
    return tuple(_walk(Sections, ""))


def type_of(key: str) -> object:
    """Return the type of a dotted key that holds a value."""
    hint: object = Sections
    for name in key.split("."):
        assert isinstance(hint, type)
        hint = hints(hint)[name]
    return hint


@functools.cache
def facts_of(key: str) -> KeyFacts:
    """Return what the schema declares of a dotted key, by itself or for a section around it."""
    result = KeyFacts()
    kind: Any = Sections
    for name in key.split("."):
        own: KeyFacts = kind.__dataclass_fields__[name].metadata.get("facts", KeyFacts())
        result = replace(own, example=result.examples.get(name, own.example), read_by=own.read_by or result.read_by)
        kind = hints(kind)[name]
    return result


def _walk(section: type, prefix: str) -> Iterator[str]:
    for name, hint in hints(section).items():
        if isinstance(hint, type) and is_dataclass(hint):
            yield from _walk(hint, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


# A misspelt neighbour may be less alike than a name of another section, since the other sections have many more.
_ALIKE, _ALIKE_ELSEWHERE = 0.6, 0.75


def nearest(word: str, options: Iterable[str], count: int = 1, *, alike: float = _ALIKE) -> list[str]:
    """Find the options that are most like ``word``; none when nothing is."""
    by_lower = {option.lower(): option for option in options}
    matches = difflib.get_close_matches(word.lower(), by_lower, n=count, cutoff=alike)
    return [by_lower[match] for match in matches]


def odd_letters(text: str) -> str:
    """Name the first letter that seems to be another one: a blank or a quote of another kind, or no ASCII at all.

    >>> odd_letters("num\u00a0envs"), odd_letters("num_envs")
    ('U+00A0 (NO-BREAK SPACE)', '')
    """
    odd = next((letter for letter in text if not letter.isascii()), "")
    return odd and f"U+{ord(odd):04X} ({unicodedata.name(odd, 'without a name')})"


def _common_end(first: str, second: str) -> int:
    """How many names at the ends of two dotted keys are the same.

    >>> _common_end("learner.optimizer.lr", "optimizer.lr"), _common_end("sft.lr", "optimizer.lr")
    (2, 1)
    """
    pairs = zip(reversed(first.split(".")), reversed(second.split(".")), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def nearest_keys(dotted: str, siblings: Iterable[str]) -> list[str]:
    """Dotted keys that ``dotted`` may have meant: the same name elsewhere, a sibling, any alike."""
    prefix, _, name = dotted.rpartition(".")
    elsewhere = [leaf for leaf in leaves() if leaf.rpartition(".")[2] == name]
    if elsewhere:
        return sorted(elsewhere, key=lambda leaf: -_common_end(leaf, dotted))[:3]
    close = nearest(name, siblings)
    if close:
        return [f"{prefix}.{close[0]}" if prefix else close[0]]
    by_name: dict[str, str] = {}
    for leaf in leaves():
        by_name.setdefault(leaf.rpartition(".")[2], leaf)
    close = nearest(name, by_name, alike=_ALIKE_ELSEWHERE)
    return [by_name[match] for match in close] or nearest(dotted, leaves(), alike=_ALIKE_ELSEWHERE)
