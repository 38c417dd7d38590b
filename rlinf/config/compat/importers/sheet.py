"""The account of an import: every setting of the other file, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rlinf.config.compat.aliases import VALUES
from rlinf.config.compat.importers.written import Code, Source
from rlinf.config.compat.names.meaning import Meaning
from rlinf.config.defaults import schema_default
from rlinf.config.problems import Origin
from rlinf.config.tree import Located, get

_NAMED = 4
"""Keys of a section without meaning here that are named one by one."""


@dataclass(frozen=True)
class Setting:
    """One of our keys, and the settings of the other file that it comes from."""

    value: object
    cause: str


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
    """Of a file whose name does not say it."""


@dataclass
class Sheet:
    """Collects our settings.

    ``names`` say what keys that no rule reads are called here, and ``defaults`` are the peer's.
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
    used: set[str] = field(default_factory=set)

    def written(self, key: str) -> Located | None:
        """The file's value at ``key``, which counts as read from now on."""
        located = get(self.source.tree, key)
        if located is None:
            return None
        self.used.add(key)
        return located

    def take(self, key: str) -> object:
        """The value at ``key``, or the peer's default; None for one that only the running script knows."""
        located = self.written(key)
        if located is None:
            return self.defaults.get(key)
        value = located.plain()
        if isinstance(value, Code):
            self.decide.append(f"{located.origin}: {key}: `{value.text}` is known only when the script runs")
            return None
        return value

    def number(self, key: str) -> float | None:
        """The same, where it is a number."""
        value = self.take(key)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def count(self, key: str) -> int | None:
        """The same, as a whole number."""
        value = self.number(key)
        return None if value is None else int(value)

    def put(self, ours: str, value: object, *keys: str) -> None:
        """Set our key; ``keys`` are what it was computed from."""
        translated = VALUES.get(ours, {}).get(value, value) if isinstance(value, str | int) else value
        self.settings[ours] = Setting(translated, " and ".join(self.said(key) for key in keys))

    def copy(self, *keys: str, under: str = "") -> None:
        """Take over values as they are, each under its only name in the table, or its own where it has none there.

        ``under``: what the peer's keys begin with.
        """
        for key in (under + name for name in keys):
            (ours,) = self.names[key].keys if key in self.names else (key,)
            self.copy_as(key, ours)

    def copy_as(self, key: str, ours: str) -> None:
        """Take over one value as it is, where the file or the peer's defaults have one."""
        value = self.take(key)
        if value is not None:
            self.put(ours, value, key)

    def said(self, key: str) -> str:
        """``key: value`` as the report shows it."""
        located = get(self.source.tree, key)
        if located is None:
            return f"{key}: {shown(self.defaults[key])} ({self.peer}'s default)" if key in self.defaults else key
        return f"{key}: {shown(located.plain())}"

    def place(self, key: str) -> Origin:
        """Where a key was written, or the file as a whole."""
        located = get(self.source.tree, key)
        return Origin(str(self.source.path)) if located is None else located.origin

    def ignore(self, key: str, why: str) -> None:
        """Say why a key has no effect here, if it was written."""
        if self.written(key) is not None:
            self.ignored.append(f"{self.place(key)}: {self.said(key)}: {why}")

    def differ(self, key: str, how: str) -> None:
        """Say what a key means here instead."""
        self.differs.append(f"{self.place(key)}: {self.said(key)}: {how}")

    def ask(self, what: str, key: str | None = None) -> None:
        """Leave something to a person."""
        self.decide.append(f"{self.place(key)}: {self.said(key)}: {what}" if key else what)

    def rest(self) -> None:
        """Everything that no rule has read: by the table of names."""
        sections: dict[str, list[str]] = {}
        for key, located in list(self.source.leaves()):
            if located.plain() in (None, "", {}, []) or any(
                key == used or key.startswith(f"{used}.") for used in self.used
            ):
                continue
            self._by_name(key, located, sections)
        for name, keys in sections.items():
            words = f"{name}: {', '.join(keys)}" if len(keys) <= _NAMED else f"{name}: its {len(keys)} keys"
            self.ignored.append(f"{self.place(name)}: {words}: {self.names[name].note}")

    def _by_name(self, key: str, located: Located, sections: dict[str, list[str]]) -> None:
        value = located.plain()
        found = next(((name, self.names[name]) for name in _upwards(key) if name in self.names), None)
        line = f"{located.origin}: {key}: {shown(value)}"
        if found is None:
            self.decide.append(f"{line}: nothing here is known of this key")
            return
        name, meaning = found
        if not meaning.keys and name != key:
            sections.setdefault(name, []).append(key.removeprefix(f"{name}."))
        elif not meaning.keys:
            self.ignored.append(f"{line}: {meaning.note}")
        elif value is False and not isinstance(schema_default(meaning.keys[0]), bool):
            self.ignored.append(f"{line}: it is off, and so it is here ({meaning.keys[0]})")
        elif meaning.note or len(meaning.keys) > 1 or name != key or not _fits(value, meaning.keys[0]):
            ours = " or ".join(meaning.keys)
            self.decide.append(f"{line}: see {ours}{f' ({meaning.note})' if meaning.note else ''}")
        elif meaning.keys[0] not in self.settings:
            self.put(meaning.keys[0], value, key)
        else:
            self.ignored.append(f"{line}: {meaning.keys[0]} is {shown(self.settings[meaning.keys[0]].value)} already")


def _fits(value: object, ours: str) -> bool:
    """Whether a value may be one of our key as it stands: switches are not numbers or words, and code is no value."""
    if isinstance(value, Code):
        return False
    return not ours.startswith("env.kwargs.") and isinstance(value, bool) == isinstance(schema_default(ours), bool)


def _upwards(key: str) -> Iterator[str]:
    while key:
        yield key
        key = key.rpartition(".")[0]


def shown(value: object) -> str:
    """A value in one short line; of a mapping its keys."""
    text = _text(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _text(value: object) -> str:
    if isinstance(value, Code):
        return value.text
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(_text(item) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(str(key) for key in value) + "}"
    return str(value).replace("\n", " ")
