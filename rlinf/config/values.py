"""Strict typing: a value becomes exactly the type that the schema names, or a problem that states what to write."""

from __future__ import annotations

import math
import re
import types
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import TypeVar

import yaml

from rlinf.base.arguments import RESUMES, is_about_resuming
from rlinf.config.compat.aliases import FLAT
from rlinf.config.foreign_keys import Hint, holds_foreign_keys
from rlinf.config.foreign_keys import hint as foreign_hint
from rlinf.config.names import hints, leaves, nearest, nearest_keys, odd_letters
from rlinf.config.problems import ConfigProblem, problem
from rlinf.config.tree import Located, shortened
from rlinf.schema.key import KeyFacts

SectionT = TypeVar("SectionT")

_EXAMPLES = {bool: "true", int: "8", float: "0.5", str: "some text"}
_SHOWN = 8
_PLAIN, _GROUPED = re.compile(r"\d+(\.\d+)?"), re.compile(r"[1-9]\d{0,2}(,\d{3})+")
_POWER = re.compile(r"(?:(\d+(?:\.\d+)?) ?[*x] ?)?10(?:\*\*|\^)([+-]?\d+)")
_SCALED, _SCALES = re.compile(r"(\d+(?:\.\d+)?) ?([kKM%])"), {"k": 1e3, "m": 1e6, "%": 0.01}
_MAPPING_FIX = "Write `name: value` lines under it, or {name: value}."
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_LEAVES_OUT = "None"
"""How Python writes null. YAML reads it as text."""
_NO_NONE = 'Write null, or "None" in quotes if it is text.'
_BASES = ("extends", "base", "_base_", "include", "includes", "inherit", "inherits", "inherit_from", "parent")
_EXTENDING = Hint("`extends: base.yaml`, at the top of a file, starts from another one.", ("extends",))
_RESUMING = Hint(f"Take it out, or write run.resume (auto, never or must): {RESUMES}.", ("run.resume", "run.dir"))


class Mismatch(Exception):
    """A value that does not fit; carries what was expected and how to write it."""

    def __init__(self, expected: str, fix: str) -> None:
        super().__init__(expected)
        self.expected = expected
        self.fix = fix


class Builder:
    """Makes sections from trees, collecting all problems; a field with a problem keeps its default."""

    def __init__(self) -> None:
        self.problems: list[ConfigProblem] = []
        self.broken: set[str] = set()

    def section(self, kind: type[SectionT], located: Located, prefix: str = "") -> SectionT:
        """Build a frozen dataclass from a mapping."""
        branch = located.branch
        if branch is None:
            # `rollout:` with nothing under it is an empty section, not a mistake.
            if located.value is not None:
                name = prefix.rstrip(".")
                first = fields(kind)[0].name  # type: ignore[arg-type]
                fix = f"Write its keys under it, indented: `{name}:` and below `  {first}: ...`."
                if isinstance(located.value, str) and located.value.partition(":")[0] in hints(typing.cast(type, kind)):
                    fix = f"Write a blank after the colon: {located.value.replace(':', ': ', 1)}."
                message = f"{name} is a section, not {_describe(located.plain())}."
                self.fail(located, name, message, fix)
            return kind()
        known = hints(typing.cast(type, kind))
        values: dict[str, object] = {}
        for name, child in branch.items():
            dotted = prefix + name
            if name not in known:
                self._unknown(child, dotted, list(known))
                continue
            hint = known[name]
            if isinstance(hint, type) and is_dataclass(hint):
                values[name] = self.section(hint, child, f"{dotted}.")
                continue
            try:
                values[name] = self.value(hint, child, dotted)
            except Mismatch as mismatch:
                got = _describe(child.plain())
                vague = "..." in mismatch.fix or mismatch.fix == _MAPPING_FIX
                fix = (vague and _declared_example(kind, name)) or mismatch.fix
                self.fail(child, dotted, f"{dotted} must be {mismatch.expected}, not {got}.", fix)
        return kind(**values)

    def fail(self, located: Located, dotted: str, message: str, fix: str) -> None:
        """Record a problem, and that no other problem can be reported for this key."""
        self.broken.add(dotted)
        self.problems.append(problem(located.origin, dotted, message, fix))

    def _unknown(self, child: Located, dotted: str, siblings: list[str]) -> None:
        """Report a problem for a key that does not exist: the name here of another framework's key, or the nearest
        one."""
        prefix = dotted.rpartition(".")[0]
        if child.branch and holds_foreign_keys(dotted):
            self._foreign_section(child, dotted)
            return
        slip = _slip(child, dotted)
        spelt_as_here = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", dotted).replace("-", "_").lower()
        meaning = Hint(slip, ()) if slip else _meaning_of(dotted) or _meaning_of(spelt_as_here)
        if meaning is not None:
            # Whatever was meant has not its value yet: nothing that depends on it can be judged.
            self.broken.update(meaning.keys)
            self.fail(child, dotted, f"{dotted} is not a key.", meaning.words)
            return
        inside = _same_ends(child, dotted)
        if inside:
            self.broken.update(inside)
            self.fail(child, dotted, f"{dotted} is not a section here.", f"Did you mean {' or '.join(inside)}?")
            return
        other_names = FLAT if prefix in ("", "algorithm") else {}
        meant = nearest_keys(dotted, [*siblings, *other_names])
        self.broken.update(FLAT.get(name, name) for name in meant)
        fix = (
            f"Did you mean {' or '.join(meant)}?"
            if meant
            else f"Keys of {prefix or 'the file'}: {', '.join(siblings)}."
        )
        self.fail(child, dotted, f"{dotted} is not a key.", fix)

    def _foreign_section(self, located: Located, dotted: str) -> None:
        """Report a section of another framework: every key with its name here, and the others in one line."""
        assert located.branch is not None
        left: list[str] = []
        for name, child in located.branch.items():
            inner = f"{dotted}.{name}"
            if _meaning_of(inner) is not None or (child.branch and holds_foreign_keys(inner)):
                self._unknown(child, inner, [])
            else:
                left.append(name)
        self.broken.add(dotted)
        if left:
            shown = ", ".join(left[:_SHOWN]) + (", ..." if len(left) > _SHOWN else "")
            message = f"{dotted} is not a section, and nothing here is called {shown}."
            self.fail(located, dotted, message, "Take them out; docs/config.md lists all keys.")

    def value(self, hint: object, located: Located, dotted: str) -> object:
        """Build a value of a type; raise :class:`Mismatch`."""
        origin = typing.get_origin(hint)
        if hint is object and _holds_none(located):
            raise Mismatch("a value of YAML", _NO_NONE)
        if origin in (typing.Union, types.UnionType):
            return self._union(typing.get_args(hint), located, dotted)
        if origin is typing.Literal:
            return _literal(typing.get_args(hint), located.value)
        if origin is list:
            return self._list(typing.get_args(hint)[0], located, dotted)
        if origin is tuple:
            members = typing.get_args(hint)
            if not isinstance(located.value, list) or len(located.value) != len(members):
                example = ", ".join(_example(member) for member in members)
                raise Mismatch(f"a list of {len(members)} values", f"For example: [{example}].")
            return tuple(
                self.value(member, child, dotted) for member, child in zip(members, located.value, strict=True)
            )
        if origin is dict:
            return self._dict(typing.get_args(hint)[1], located, dotted)
        if isinstance(hint, type) and is_dataclass(hint):
            return self.section(hint, located, f"{dotted}.")
        if hint is object:
            return located.plain()
        scalar: Callable[[object], object] = _SCALARS[typing.cast(type, hint)]
        if hint is str and located.written is not None and not isinstance(located.value, str | None):
            raise Mismatch(_WORDS[str], f'Put it in quotes: "{located.written}".')
        if hint is str and located.branch is not None:
            raise Mismatch(_WORDS[str], "Put it in quotes if it is text with a colon.")
        return scalar(located.value)

    def _union(self, members: tuple[object, ...], located: Located, dotted: str) -> object:
        if located.value is None and type(None) in members:
            return None
        if located.branch is not None:
            return self._union_mapping(members, located, dotted)
        if located.written == _LEAVES_OUT and type(None) in members and object not in members:
            expected = " or ".join(_name(member) for member in members if member is not type(None))
            raise Mismatch(f"{expected} (or null)", _NO_NONE)
        mismatches: list[Mismatch] = []
        for member in members:
            if member is type(None) or typing.get_origin(member) is dict or is_dataclass(member):
                continue
            try:
                return self.value(member, located, dotted)
            except Mismatch as mismatch:
                mismatches.append(mismatch)
        expected = " or ".join(mismatch.expected for mismatch in mismatches) or "a mapping"
        if type(None) in members:
            expected += " (or null)"
        raise Mismatch(expected, mismatches[-1].fix if mismatches else _MAPPING_FIX)

    def _union_mapping(self, members: tuple[object, ...], located: Located, dotted: str) -> object:
        assert located.branch is not None
        sections = [member for member in members if isinstance(member, type) and is_dataclass(member)]
        mappings = [member for member in members if typing.get_origin(member) is dict]
        for section in sections:
            if set(located.branch) <= set(hints(section)) or not mappings:
                return self.section(section, located, f"{dotted}.")
        if sections:
            # A mapping by domain: each entry is whatever the key itself may be.
            for name, child in located.branch.items():
                self._union(members, child, f"{dotted}.{name}")
            return located.plain()
        if mappings:
            return self.value(mappings[0], located, dotted)
        expected = " or ".join(_name(member) for member in members if member is not type(None))
        raise Mismatch(expected, f"For example: {dotted.rpartition('.')[2]}: {_example(members[0])}.")

    def _list(self, member: object, located: Located, dotted: str) -> list[object]:
        if not isinstance(located.value, list):
            example = _example(member)
            entries = _entries(member, located)
            fix = f"Write [{', '.join(entries)}]." if entries else f"For example: [{example}, {example}]."
            raise Mismatch(f"a list, each entry {_name(member)}", fix)
        try:
            return [self.value(member, child, dotted) for child in located.value]
        except Mismatch as mismatch:
            entries = _entries(member, located.value[0]) if len(located.value) == 1 and member is not str else []
            fix = f"Write [{', '.join(entries)}]." if len(entries) > 1 else mismatch.fix
            raise Mismatch(f"a list where each entry is {mismatch.expected}", fix) from None

    def _dict(self, member: object, located: Located, dotted: str) -> dict[str, object]:
        if located.branch is None:
            if located.value is None:
                return {}
            raise Mismatch("a mapping", _MAPPING_FIX)
        return {name: self.value(member, child, f"{dotted}.{name}") for name, child in located.branch.items()}


def _declared_example(kind: typing.Any, name: str) -> str:
    """Return the example that the schema has of a key whose values are lists or mappings; empty if it has none."""
    example = kind.__dataclass_fields__[name].metadata.get("facts", KeyFacts()).example
    if not isinstance(example, list | dict):
        return ""
    text = yaml.safe_dump(example, default_flow_style=True, sort_keys=False, width=math.inf)
    return f"For example: {name}: {text.strip()}."


def _entries(member: object, located: Located) -> list[str]:
    """Return the entries of a list that was written without brackets, `64, 64`; none if it is something else."""
    if located.branch is not None or isinstance(located.value, bool | None) or member not in (int, float, str):
        return []
    entries = re.findall(r"[^,\s]+", str(located.value).strip("[]() "))
    try:
        [typing.cast(type, member)(entry) for entry in entries]
    except ValueError:
        return []
    return entries


def _slip(child: Located, dotted: str) -> str:
    """How to write a key whose letters or colon went wrong; empty if they did not."""
    prefix, _, name = dotted.rpartition(".")
    inside = f"{prefix}." if prefix else ""
    if odd := odd_letters(dotted):
        close = nearest_keys(dotted.encode("ascii", "ignore").decode().strip(), ())
        return f"It holds {odd}: type it again{f', as {close[0]}' if close else ''}."
    key, colon, value = dotted.partition(":")
    if colon and value and child.value is None and key in leaves():
        return f"Write a blank after the colon: {key.removeprefix(inside)}: {value}."
    if dotted in leaves():
        *sections, last = dotted.split(".")
        opened = "".join(f"{section}: {{" for section in sections)
        return f"Write sections and keys in each other: {opened}{last}: {child.written or '...'}{'}' * len(sections)}."
    if child.value is None and not child.written and name.strip("()").isdigit():
        return "A comma separates entries here: decimals have a dot, and lists are in brackets, [8, 8]."
    return ""


def _holds_none(located: Located) -> bool:
    """Return whether Python's None stands, without quotes, in a value that may be anything."""
    if located.branch is not None:
        return any(_holds_none(child) for child in located.branch.values())
    if isinstance(located.value, list):
        return any(_holds_none(child) for child in located.value)
    return located.written == _LEAVES_OUT


def _meaning_of(dotted: str) -> Hint | None:
    """Find what a key of another framework is here, or one by its words: `resume_from` of whatever section."""
    name = dotted.rpartition(".")[2]
    if name in _BASES:
        return _EXTENDING
    return foreign_hint(dotted) or (_RESUMING if is_about_resuming(name) else None)


def _same_ends(located: Located, dotted: str) -> list[str]:
    """Keys whose dotted names end as those under an unknown section do: `learner.optimizer.lr` of `optimizer.lr`."""
    results: list[str] = []
    for name, child in (located.branch or {}).items():
        inner = f"{dotted}.{name}"
        longer = _same_ends(child, inner)
        results += longer or [leaf for leaf in leaves() if leaf.endswith(f".{inner}")]
    return list(dict.fromkeys(results))[:3]


def _bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise Mismatch(_WORDS[bool], "Write true or false, without quotes.")


def number_meant(value: object) -> str:
    """Return the number that a text writes as people do, in the form that is read here; empty if it is none.

    >>> [number_meant(text) for text in ("1,000", "10k", "3*10^-4", "10**-4", "=0.1", "5%", "0,001")]
    ['1000', '10000', '3e-4', '1e-4', '0.1', '0.05', '']
    """
    text = value.strip().lstrip("=") if isinstance(value, str) else ""
    if power := _POWER.fullmatch(text):
        return f"{power[1] or 1}e{power[2]}"
    if scaled := _SCALED.fullmatch(text):
        return f"{float(scaled[1]) * _SCALES[scaled[2].lower()]:.12g}"
    text = text.replace(",", "") if _GROUPED.fullmatch(text) else text
    return text if text != value and _PLAIN.fullmatch(text) else ""


def _int(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        raise Mismatch(_WORDS[int], f"Write {int(value)}.")
    if isinstance(value, str) and value.strip().lstrip("+-").isdigit():
        raise Mismatch(_WORDS[int], f"Write {int(value)}, without quotes.")
    meant = number_meant(value)
    raise Mismatch(_WORDS[int], f"Write {meant}." if meant.isdigit() else "For example: 8.")


def _float(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        # Every comparison with NaN is false: it would pass all range checks.
        if not math.isfinite(value):
            raise Mismatch("a finite number", "For example: 0.5 or 1e-4.")
        return float(value)
    if isinstance(value, str):
        try:
            finite = math.isfinite(float(value))
        except ValueError:
            finite = False
        if finite:
            raise Mismatch(_WORDS[float], f"Write {value.strip()}, without quotes.")
        if odd := odd_letters(value):
            raise Mismatch(_WORDS[float], f"Type it again: it holds {odd}.")
    meant = number_meant(value)
    raise Mismatch(_WORDS[float], f"Write {meant}." if meant else "For example: 0.5 or 1e-4.")


def _str(value: object) -> str:
    if isinstance(value, str):
        return value
    plain = isinstance(value, bool | int | float)
    one = value[0].value if isinstance(value, list) and len(value) == 1 else None
    fix = f"Write {one}, without brackets." if isinstance(one, str) else "Write a word."
    if isinstance(value, list) and len(value) > 1:
        fix = "Write one; several files of data go into a folder, which is read as a whole."
    raise Mismatch(_WORDS[str], f'Put it in quotes: "{value}".' if plain else fix)


_SCALARS: dict[type, Callable[[object], object]] = {bool: _bool, int: _int, float: _float, str: _str}


def _literal(options: tuple[object, ...], value: object) -> object:
    for option in options:
        if value == option and type(value) is type(option):
            return option
    # `off` and `no` are false in YAML: suggest the option in quotes if it was surely meant as a word.
    close = nearest(value, [str(option) for option in options]) if isinstance(value, str) else []
    fix = f"Did you mean {close[0]}?" if close else f"Write {options[0]}, for example."
    raise Mismatch(f"one of {', '.join(str(option) for option in options)}", fix)


def _describe(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"the switch {str(value).lower()}"
    if isinstance(value, str):
        return f'the text "{shortened(value)}"'
    if isinstance(value, dict):
        return "a mapping"
    return f"the list {shortened(str(value))}" if isinstance(value, list) else shortened(str(value))


def _name(hint: object) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return f"one of {', '.join(str(option) for option in typing.get_args(hint))}"
    return _WORDS.get(hint, "a value") if isinstance(hint, type) else "a value"


def _example(hint: object) -> str:
    return _EXAMPLES.get(hint, "...") if isinstance(hint, type) else "..."
