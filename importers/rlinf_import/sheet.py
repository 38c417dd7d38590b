"""The account of an import: every setting of the other file, and what became of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rlinf.config.compat.aliases import VALUES
from rlinf.config.problems import Origin
from rlinf.config.tree import Located, get
from rlinf_import.names.meaning import Meaning
from rlinf_import.refusal import Missing
from rlinf_import.written import Code, Source, leaves_below


@dataclass(frozen=True)
class Setting:
    """One of our keys, and the settings of the other file that it comes from: in words, and by name."""

    value: object
    cause: str
    keys: tuple[str, ...] = ()
    origin: str = ""
    note: str = ""
    """Why it is another value than that of its cause."""


@dataclass(frozen=True)
class Options:
    """Settings that the other framework's command line would give, and its file does not."""

    rows: int | None = None
    """Rows of the training data, for lengths that are given in epochs."""
    processes: int | None = None
    """Processes of the launcher, where batch sizes are given for each."""
    environment: str | None = None
    """Which entry of a file of many environments."""
    algorithm: str | None = None
    """Of a file whose name does not give it."""


@dataclass
class Sheet:
    """Collects our settings.

    ``names`` give our names for keys that no rule reads, and ``defaults`` are the peer's.
    """

    peer: str
    source: Source
    options: Options
    names: Mapping[str, Meaning]
    defaults: Mapping[str, object]
    settings: dict[str, Setting] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    """A line each: what is not carried over, and why."""
    differs: list[str] = field(default_factory=list)
    """A line each: what was carried over and means something else here."""
    decide: list[str] = field(default_factory=list)
    """A line each: what a person has to fill in or choose."""
    missing: list[Missing] = field(default_factory=list)
    """Features that do not exist here: with any of them nothing is written."""
    used: set[str] = field(default_factory=set)
    """Keys that a rule has read."""
    named: set[str] = field(default_factory=set)
    """Keys that a line of the report names."""

    def written(self, key: str) -> Located | None:
        """Return the file's value at ``key``, which counts as read from now on."""
        located = get(self.source.tree, key)
        if located is None:
            return None
        self.used.add(key)
        return located

    def take(self, key: str) -> object:
        """Return the value at ``key``, or the peer's default; None for one that is known only when the script runs."""
        located = self.written(key)
        if located is None:
            return self.defaults.get(key)
        value = located.plain()
        if isinstance(value, Code):
            if key not in self.named:
                self.decide.append(f"{located.origin}: {key}: `{value.text}` is known only when the script runs")
                self.named.add(key)
            return None
        return value

    def number(self, key: str) -> float | None:
        """Return the same, if it is a number, or a text that is one."""
        value = self.take(key)
        try:
            return float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
        except ValueError:
            return None

    def count(self, key: str) -> int | None:
        """Return the same, as a whole number."""
        value = self.number(key)
        return None if value is None else int(value)

    def text(self, key: str) -> str:
        """Return the same, as text; empty if there is none."""
        value = self.take(key)
        return "" if value is None else str(value)

    def put(self, ours: str, value: object, *keys: str) -> None:
        """Set our key; ``keys`` are what it was computed from."""
        translated = VALUES.get(ours, {}).get(value, value) if isinstance(value, str | int) else value
        origin = str(self.origin(keys[0])) if keys else str(self.source.path)
        self.settings[ours] = Setting(translated, " and ".join(self.as_written(key) for key in keys), keys, origin)

    def value(self, ours: str) -> object:
        """Return the value that was set at one of our keys; None for none."""
        setting = self.settings.get(ours)
        return None if setting is None else setting.value

    def adjust(self, ours: str, value: object, why: str) -> None:
        """Set our key to another value than the written one, and report why."""
        before = self.settings.get(ours)
        keys = () if before is None else before.keys
        cause = "" if before is None else before.cause
        self.settings[ours] = Setting(value, cause, keys, "" if before is None else before.origin, why)
        location = str(self.source.path) if before is None or not before.origin else before.origin
        self.differs.append(f"{location}: {f'{cause}: ' if cause else ''}{ours} is {shown(value)}: {why}")

    def drop(self, ours: str, why: str) -> None:
        """Take one of our keys out again, and report why."""
        setting = self.settings.pop(ours, None)
        if setting is not None:
            self.ignored.append(f"{setting.origin}: {setting.cause or ours}: {why}")
            self.named.update(setting.keys)

    def copy(self, *keys: str, under: str = "") -> None:
        """Take over values as they are, each under its only name in the table, or its own if it has none there.

        ``under``: what the peer's keys begin with.
        """
        for key in (under + name for name in keys):
            (ours,) = self.names[key].keys if key in self.names else (key,)
            self.copy_as(key, ours)

    def copy_as(self, key: str, ours: str) -> None:
        """Take over one value as it is, if the file or the peer's defaults have one."""
        value = self.take(key)
        if value is not None:
            self.put(ours, value, key)

    def as_written(self, key: str) -> str:
        """``key: value`` as the report shows it; of a section all keys below it."""
        located = get(self.source.tree, key)
        if located is None:
            return f"{key}: {shown(self.defaults[key])} ({self.peer}'s default)" if key in self.defaults else key
        return pair(key, located.plain())

    def origin(self, key: str) -> Origin:
        """Return where a key was written, or the file as a whole."""
        located = get(self.source.tree, key)
        return Origin(str(self.source.path)) if located is None else located.origin

    def ignore(self, key: str, why: str) -> None:
        """Report why a key, or every key of a section, has no effect here, if it was written."""
        located = self.written(key)
        if located is None:
            return
        if located.branch:
            below = [(name, at) for name, at in leaves_below(located.branch) if f"{key}.{name}" not in self.accounted()]
            if not below:
                return
            words = ", ".join(pair(name, at.plain()) for name, at in below)
            self.ignored.append(f"{self.origin(key)}: {key}: {words}: {why}")
            self.named.update(f"{key}.{name}" for name, _ in below)
        elif key not in self.accounted():
            self.ignored.append(f"{self.origin(key)}: {self.as_written(key)}: {why}")
        self.named.add(key)

    def differ(self, key: str, how: str) -> None:
        """Report what a key means here instead."""
        line = f"{self.origin(key)}: {self.as_written(key)}: {how}"
        if line not in self.differs:
            self.differs.append(line)
        self.named.add(key)

    def defer(self, what: str, key: str | None = None) -> None:
        """Leave something to a person."""
        self.decide.append(f"{self.origin(key)}: {self.as_written(key)}: {what}" if key else what)
        if key:
            self.named.add(key)

    def refuse(self, feature: str, nearest: str, key: str) -> None:
        """Report that a feature does not exist here: the file is not carried over."""
        result = Missing(feature, f"{self.origin(key)}: {self.as_written(key)}", nearest)
        self.named.add(key)
        if feature not in [one.feature for one in self.missing]:
            self.missing.append(result)

    def accounted(self) -> set[str]:
        """Every key that a setting comes from, or that a line of the report names."""
        return self.named.union(*(setting.keys for setting in self.settings.values()))

    def open_leaves(self) -> Iterator[tuple[str, Located]]:
        """Every written key that nothing has accounted for so far."""
        known = self.accounted()
        yield from ((key, located) for key, located in self.source.leaves() if key not in known)


_SECRET = re.compile(
    r"(^|\.)(\w*api_?key|wandb_key|(hf_|hub_|access_|auth_)?token|\w*secret|\w*password|use_wandb)$", re.I
)
"""Names of settings that hold a secret; OpenRLHF's ``use_wandb`` is the key itself."""


def pair(key: str, value: object) -> str:
    """Show a setting as ``key: value``; secrets are left out, for reports are passed on."""
    hidden = isinstance(value, str) and value.lower() not in ("true", "false", "") and _SECRET.search(key)
    return f"{key}: {'(hidden)' if hidden else shown(value)}"


def shown(value: object) -> str:
    """Show a value in one short line; of a mapping its keys."""
    text = _text(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _text(value: object) -> str:
    if isinstance(value, Code):
        return value.text.replace("\n", " ")
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(_text(item) for item in value)}]"
    if isinstance(value, dict):
        parts = (
            f"{key}: {_text(item)}" if isinstance(item, dict) and item else str(key) for key, item in value.items()
        )
        return "{" + ", ".join(parts) + "}"
    return str(value).replace("\n", " ")
