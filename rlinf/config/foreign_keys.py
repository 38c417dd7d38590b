"""Hints for keys of other frameworks, from the package that has their vocabularies: found by its entry point."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import metadata
from typing import Protocol

GROUP = "rlinf.foreign_keys"


@dataclass(frozen=True)
class Hint:
    """The words to write instead of an unknown key, and our keys that may have been meant."""

    words: str
    keys: tuple[str, ...]


class Vocabulary(Protocol):
    """The module that an entry point of the group names."""

    def hint(self, dotted: str) -> Hint | None:
        """Find the hint for an unknown key; None if no framework has it."""

    def holds_foreign_keys(self, section: str) -> bool:
        """Whether another framework has keys below this one."""


@functools.cache
def _vocabularies() -> tuple[Vocabulary, ...]:
    return tuple(entry.load() for entry in metadata.entry_points(group=GROUP))


def hint(dotted: str) -> Hint | None:
    """Find the hint for an unknown key; None if no framework has it."""
    hints = (vocabulary.hint(dotted) for vocabulary in _vocabularies())
    return next((one for one in hints if one is not None), None)


def holds_foreign_keys(section: str) -> bool:
    """Whether another framework has keys below this one, so that each of them can be matched by itself."""
    return any(vocabulary.holds_foreign_keys(section) for vocabulary in _vocabularies())
