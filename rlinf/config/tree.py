"""A configuration as it was written: nested values, each with the file and line it came from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rlinf.config.problems import Origin

Branch = dict[str, "Located"]


@dataclass
class Located:
    """A value and its origin. ``value`` is a scalar, a list of Located, or a mapping of names to Located."""

    value: object
    origin: Origin
    expression: str | None = None
    """The ``${...}`` that the value came from, if it must be stored instead (it reads the environment)."""
    written: str | None = None
    """The letters that YAML made the value of: `no` of false, `1e5` of 100000.0."""

    @property
    def branch(self) -> Branch | None:
        """The mapping, if the value is one."""
        return self.value if isinstance(self.value, dict) else None

    def plain(self) -> object:
        """Return the value without origins."""
        if isinstance(self.value, dict):
            return {name: child.plain() for name, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value


def shortened(text: str, most: int = 120) -> str:
    """Shorten the text for a message: printable, and not longer than a reader needs.

    >>> shortened("a" * 500, most=6)
    'aaa...'
    """
    printable = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text[: most + 1])
    return printable if len(printable) <= most else printable[: most - 3] + "..."


def read_mixture(tree: Branch) -> None:
    """Write ``env: [...]``, short for ``env: {tasks: [...]}``, in full: other layers may add keys of the section."""
    written = tree.get("env")
    if written is not None and isinstance(written.value, list):
        tree["env"] = Located({"tasks": written}, written.origin)


def locate(value: object, origin: Origin) -> Located:
    """Build a tree from plain data, with the same origin everywhere. Numbers and arrays of NumPy, and paths, too."""
    if isinstance(value, Mapping):
        return Located({str(name): locate(child, origin) for name, child in value.items()}, origin)
    if isinstance(value, list | tuple):
        return Located([locate(child, origin) for child in value], origin)
    if isinstance(value, os.PathLike):
        return Located(os.fspath(value), origin)
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):  # imported by the code that made the value
        return locate(value.tolist(), origin)
    return Located(value, origin)


def merge(base: Branch, over: Branch) -> Branch:
    """``over`` laid on ``base``: mappings merge by key, everything else is replaced."""
    merged = dict(base)
    for name, value in over.items():
        below = merged.get(name)
        if below is not None and below.branch is not None and value.branch is not None:
            merged[name] = Located(merge(below.branch, value.branch), below.origin)
        else:
            merged[name] = value
    return merged


def get(tree: Branch, dotted: str) -> Located | None:
    """Return the value written at a dotted key."""
    name, _, rest = dotted.partition(".")
    result = tree.get(name)
    if result is None or not rest:
        return result
    return get(result.branch, rest) if result.branch is not None else None


def put(tree: Branch, dotted: str, value: Located) -> None:
    """Write at a dotted key, making the sections on the way."""
    name, _, rest = dotted.partition(".")
    if not rest:
        tree[name] = value
        return
    child = tree.get(name)
    if child is None or child.branch is None:
        child = tree[name] = Located({}, value.origin)
    assert child.branch is not None
    put(child.branch, rest, value)


def drop(tree: Branch, dotted: str) -> Located | None:
    """Take what is written at a dotted key out of the tree."""
    prefix, _, name = dotted.rpartition(".")
    parent = get(tree, prefix) if prefix else None
    branch = tree if not prefix else parent.branch if parent is not None else None
    return branch.pop(name, None) if branch is not None else None


def expressions(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """(path, expression) of every value in a tree that came from one which is kept; list items by their number."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, child in steps:
        here = (*path, str(step))
        if child.expression is not None:
            yield here, child.expression
        else:
            yield from expressions(child.value, here)


def origins(tree: Branch, prefix: str = "") -> Iterator[tuple[str, Origin]]:
    """Yield every dotted key that was written, sections included, with its origin."""
    for name, child in tree.items():
        yield prefix + name, child.origin
        if child.branch is not None:
            yield from origins(child.branch, f"{prefix}{name}.")
