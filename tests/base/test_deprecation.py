"""Deprecations: each names its replacement and the version without the old name, which is a later one."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import rlinf
from rlinf.base import earlier_paths
from rlinf.base.deprecation import deprecate

ROOT = Path(__file__).parents[2]
SOURCES = [path for folder in ("rlinf", "envs", "importers") for path in sorted((ROOT / folder).rglob("*.py"))]
KINDS = {"DeprecationWarning", "FutureWarning", "PendingDeprecationWarning"}


def test_the_warning_names_replacement_version_and_the_callers_line() -> None:
    with pytest.warns(DeprecationWarning, match=r"^rlinf\.old is deprecated") as caught:
        deprecate("rlinf.old", "rlinf.new", removed_in="9.0", stacklevel=1)
    (found,) = caught
    assert str(found.message) == "rlinf.old is deprecated and goes in version 9.0: use rlinf.new"
    assert found.filename == __file__


def nodes_of(path: Path, words: Iterable[str]) -> Iterator[ast.AST]:
    """The syntax tree of a file that has one of ``words``; nothing of any other."""
    text = path.read_text(encoding="utf-8")
    return ast.walk(ast.parse(text)) if any(word in text for word in words) else iter(())


def calls() -> Iterator[tuple[Path, ast.Call]]:
    for path in SOURCES:
        for node in nodes_of(path, ("deprecate(",)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "deprecate":
                yield path, node


def test_no_other_module_warns_of_deprecations() -> None:
    """A warning of another module could leave the version out."""
    own = ROOT / "rlinf" / "base" / "deprecation.py"
    others = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        for node in nodes_of(path, KINDS)
        if path != own and isinstance(node, ast.Name) and node.id in KINDS
    ]
    assert not others, others


def test_what_is_deprecated_is_removed_in_a_later_version() -> None:
    """Fails in the release that has to remove it."""
    now = tuple(int(part) for part in rlinf.__version__.split(".")[:2])
    named: dict[str, str] = {"_REMOVED_IN": earlier_paths._REMOVED_IN}
    found = 0
    for path, call in calls():
        (value,) = [keyword.value for keyword in call.keywords if keyword.arg == "removed_in"]
        version = str(value.value) if isinstance(value, ast.Constant) else named[ast.unparse(value)]
        major, minor = (int(part) for part in version.split("."))
        assert (major, minor) > now, f"{path.relative_to(ROOT)}:{call.lineno}: version {version} is there"
        found += 1
    assert found
