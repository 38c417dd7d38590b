"""Rejects what a YAML document may not hold, on its nodes, before any value is made of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import yaml

MAX_REPEATED_VALUES = 100_000
"""Values that aliases may add to a document. A configuration repeats a few dozen; a "billion laughs" document of one
kilobyte repeats more than memory holds."""
LARGEST_BITS = 64
"""Of an integer, in a file or as the product of others."""
_LONGEST_INTEGER = 100
"""Characters: base 2 takes 66 of them for the largest one. Python refuses thousands of digits, or takes minutes."""
_PREFIX = "tag:yaml.org,2002:"
_TAGS = {
    _PREFIX + name for name in ("map", "seq", "str", "int", "float", "bool", "null", "timestamp", "merge", "value")
}

INTEGERS = f"Integers have at most {LARGEST_BITS} bits (18446744073709551615)."
"""How to correct one that is too large."""


@dataclass(frozen=True)
class RefusedNode:
    """A node that is not read: its line (from 1), why, and what to write instead."""

    line: int
    message: str
    fix: str


def refused(root: yaml.Node) -> RefusedNode | None:
    """Find the first thing in a document that is not read, or None. Takes time linear in the written document."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()
    written = 0
    # An explicit stack: documents are as deep as their author likes.
    stack: list[tuple[yaml.Node, Iterator[yaml.Node]]] = []

    def enter(node: yaml.Node) -> None:
        open_nodes.add(id(node))
        stack.append((node, iter(_children(node))))

    enter(root)
    while stack:
        node, children = stack[-1]
        child = next((child for child in children if id(child) not in sizes), None)
        if child is not None:
            if id(child) in open_nodes:
                fix = "Write the value out, or name an anchor that is defined elsewhere."
                return RefusedNode(_line(child), "an alias stands inside of its own anchor: the value has no end.", fix)
            enter(child)
            continue
        stack.pop()
        open_nodes.discard(id(node))
        if node.tag not in _TAGS:
            return RefusedNode(_line(node), f"the tag {_shown(node.tag)} is not read here.", "Write plain YAML values.")
        if node.tag == f"{_PREFIX}int" and len(node.value) > _LONGEST_INTEGER:
            return RefusedNode(_line(node), f"the integer has {len(node.value):,} characters.", INTEGERS)
        written += 1
        sizes[id(node)] = 1 + sum(sizes[id(child)] for child in _children(node))
        if sizes[id(node)] - written > MAX_REPEATED_VALUES:
            message = f"aliases repeat more than {MAX_REPEATED_VALUES:,} values here."
            return RefusedNode(_line(node), message, "Repeat less with `*name`; lists of data belong in a file.")
    return None


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _shown(tag: str) -> str:
    return f"!!{tag.removeprefix(_PREFIX)}" if tag.startswith(_PREFIX) else tag
