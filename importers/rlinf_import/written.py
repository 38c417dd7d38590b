"""The contents of another framework's file: keys, values and lines, whatever kind of file it is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rlinf.base.errors import UserError
from rlinf.config.interpolate import interpolate
from rlinf.config.problems import Origin
from rlinf.config.reader import Reader
from rlinf.config.tree import Branch, Located, put
from rlinf_import.refusal import NotTrainingError

_LOGGED = frozenset(("wandb_version", "_wandb"))
"""Keys of a configuration that Weights & Biases saved, whose others are ``{desc: ..., value: ...}``."""
_REFERENCE = re.compile(r"\$\{([\w.-]+)\}")


@dataclass(frozen=True)
class Code:
    """A value that is known only when the script runs."""

    text: str


@dataclass
class Source:
    """The settings of one file as a tree, and what could not be read on the way."""

    path: Path
    tree: Branch
    remarks: list[str]
    programs: list[str] = field(default_factory=list)
    """Of a shell script: the modules that it starts."""
    referred: set[str] = field(default_factory=set)
    """Keys that other keys of the file name, as ``${key}``."""

    def leaves(self) -> Iterator[tuple[str, Located]]:
        """Every dotted key that holds a value."""
        yield from leaves_below(self.tree)


def leaves_below(tree: Branch, prefix: str = "") -> Iterator[tuple[str, Located]]:
    """Every dotted key of a tree that holds a value."""
    for name, located in tree.items():
        if located.branch:
            yield from leaves_below(located.branch, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", located


def upwards(key: str) -> Iterator[str]:
    """Yield a dotted key, and then the sections that hold it, the innermost first."""
    while key:
        yield key
        key = key.rpartition(".")[0]


def document(path: Path) -> Branch:
    """Read one YAML file as a tree with lines; raise UserError if it is no YAML."""
    reader = Reader()
    tree = reader.read_text(read_text(path), str(path))
    if reader.problems:
        words = [str(result) for result in reader.problems]
        if len(words) == 1 and "the file holds no keys" in words[0]:
            whole = path.with_name("config.yaml")  # what Hydra writes next to overrides.yaml
            other = str(whole) if whole.is_file() and whole != path else "a file of sections and keys"
            raise NotTrainingError(path, "a list or a single value", f"Import {other}.")
        raise UserError("\n".join(words))
    if _LOGGED.intersection(tree):
        values = {name: (one.branch or {}).get("value") for name, one in tree.items() if name not in _LOGGED}
        return {name: value for name, value in values.items() if value is not None}
    return tree


def resolve(source: Source) -> None:
    """Resolve ``${...}`` in the source itself; a value that does not resolve stays as it was and is remarked on."""
    for _, located in source.leaves():
        if isinstance(located.value, str):
            source.referred.update(_REFERENCE.findall(located.value))
    for located_id, reason in interpolate([source.tree]).items():
        for key, located in source.leaves():
            if id(located) == located_id:
                source.remarks.append(f"{located.origin}: {key}: {located.value} does not resolve: {reason}")
                located.value = Code(str(located.value))


def override(source: Source, words: Mapping[str, str]) -> None:
    """Lay ``key=value`` words of a command line over the file."""
    reader = Reader()
    for key, text in words.items():
        value = reader.read_value(key, text)
        if value is not None:
            put(source.tree, key, value)
    if reader.problems:
        raise UserError("\n".join(str(result) for result in reader.problems))


def scalar(text: str, origin: Origin) -> Located:
    """Return the YAML value of a word of a command."""
    reader = Reader()
    value = reader.read_value("value", text)
    return Located(text, origin) if value is None else Located(value.value, origin)


def read_text(path: Path) -> str:
    """Read the file's text; raise UserError if there is none."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{path} does not exist.") from None
    except (IsADirectoryError, UnicodeDecodeError):
        raise UserError(f"{path} is not a text file.") from None
