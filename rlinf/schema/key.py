"""What a key of the file is, next to its type, default and text: its bounds, an example, and who reads it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Readers:
    """The policies that read a key, by `policy.name`, and what a message calls them."""

    policies: tuple[str, ...]
    words: str


OWN = "module:Class"
"""Stands for every policy of a user's own."""
TEXT = Readers(("causal_lm",), "by language models")
LANGUAGE = Readers(("causal_lm", "vla", "flow"), "by language models and vla policies")
SIMULATOR = Readers(("actor_critic", "vla", "flow", OWN), "by simulator policies")
ACTOR_CRITIC = Readers(("actor_critic",), "by simulator policies with policy.name: actor_critic")
VLA = Readers(("vla", "flow"), "by policy.name: vla and flow")
FLOW = Readers(("flow",), "by policy.name: flow")
READERS = (TEXT, LANGUAGE, SIMULATOR, ACTOR_CRITIC, VLA, FLOW)


@dataclass(frozen=True)
class KeyFacts:
    """The facts of a key or of a section; those of a section hold for each key in it.

    Example:
        >>> KeyFacts(at_least=0, at_most=1).bound_broken_by(1.5)
        ('at most 1', 'Write 1 or less.')
    """

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    why: str = ""
    """The reason for a bound, as the end of a sentence."""
    example: object = None
    """A value worth writing; None derives one from the type and the default."""
    examples: Mapping[str, object] = field(default_factory=dict)
    """Of a section: examples of its keys, by their names."""
    for_runs: Mapping[str, object] = field(default_factory=dict)
    """Other defaults, by the kind of run that has them; `config/defaults.py` decides which kind a run is."""
    read_by: Readers | None = None
    """None: every run may read it."""
    needs: str = ""
    """The key of the same section, with its value, without which nothing reads this one: `dynamic_sampling: true`."""

    def bound_broken_by(self, number: float) -> tuple[str, str] | None:
        """Return the first bound that ``number`` breaks, and what to write instead; None if there is none."""
        if self.at_least is not None and number < self.at_least:
            return f"at least {self.at_least:g}", f"Write {self.at_least:g} or more."
        if self.above is not None and number <= self.above:
            return f"above {self.above:g}", f"Write more than {self.above:g}."
        if self.at_most is not None and number > self.at_most:
            return f"at most {self.at_most:g}", f"Write {self.at_most:g} or less."
        return None


def key(
    default: T,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    why: str = "",
    example: object = None,
    for_runs: Mapping[str, object] | None = None,
    read_by: Readers | None = None,
    needs: str = "",
) -> T:
    """Declare a key with its default and facts; the string under it is its text."""
    facts = {"facts": KeyFacts(at_least, above, at_most, why, example, {}, for_runs or {}, read_by, needs)}
    if isinstance(default, list | dict):
        # Dataclasses refuse a mutable default: each section gets its own copy.
        return field(default_factory=lambda: copy.copy(default), metadata=facts)
    return field(default=default, metadata=facts)


def section(kind: type[T], *, examples: Mapping[str, object] | None = None, read_by: Readers | None = None) -> T:
    """Declare a section within a section, with examples of its keys that differ from those of its class."""
    return field(default_factory=kind, metadata={"facts": KeyFacts(examples=examples or {}, read_by=read_by)})
