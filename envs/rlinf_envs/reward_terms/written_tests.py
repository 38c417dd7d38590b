"""Tests of programs as data sets write them: statements, functions ``test_...``, calls, and texts to read and print."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlinf.base.json_text import parse_json
from rlinf_envs.reward_terms.assertions import guarded
from rlinf_envs.reward_terms.prompt_code import code_of
from rlinf_envs.reward_terms.pytest_tests import collected

_CHECK = re.compile(r"^def check\(", re.MULTILINE)
_CHECKED = re.compile(r"^check\(", re.MULTILINE)


@dataclass(frozen=True)
class Statements:
    """Statements in the names of the program, each a test; ``setup`` runs before the first."""

    tests: tuple[str, ...]
    setup: str = ""
    code: str = ""
    """What the row's prompt defines: the program begins with it."""
    name: str = ""
    """The function or class that the program has to define; all else of ``code`` is the tests' own. "" if unknown."""

    @property
    def count(self) -> int:
        return len(self.tests)


@dataclass(frozen=True)
class Calls:
    """Calls of one function. ``name``: of a function, or of a method of the class Solution; "" if there is only one."""

    name: str
    pairs: tuple[tuple[str, str], ...]
    """Arguments of each as Python writes them, and the list of the results that are right as JSON."""

    @property
    def count(self) -> int:
        return len(self.pairs)


@dataclass(frozen=True)
class Texts:
    """Pairs of a text that the program reads, and of the one that it has to print."""

    pairs: tuple[tuple[str, str], ...]

    @property
    def count(self) -> int:
        return len(self.pairs)


def statements(listed: Sequence[str], row: Mapping[str, Any]) -> Statements:
    """Return the tests in texts of Python: each a test if there are several, else the functions ``test...`` in it.

    Raises:
        ValueError: the text is no Python, uses what the sandbox does not have, or leaves open what it checks.
    """
    imports = row.get("test_imports") or ()
    setup = "\n".join([*map(str, imports if is_listed(imports) else [imports]), str(row.get("test_setup_code") or "")])
    entry = str(row.get("entry_point") or "")
    parts = [collected(text) for text in listed]
    codes = [guarded(text) for text, _ in parts]
    runs = [[f"_run_test(globals(), {test!r})" for test in tests] for _, tests in parts]
    if any(runs):
        setup += "\nfrom pytest import run_test as _run_test"
    if len(codes) > 1:
        tests = ["\n".join((text, *run)) for text, run in zip(codes, runs, strict=True)]
    elif _CHECK.search(codes[0]) and not _CHECKED.search(codes[0]):
        if not entry:
            raise ValueError("defines check(candidate), so the row needs entry_point")
        setup, tests = f"{setup}\n{codes[0]}", [f"check({entry})"]
    elif runs[0]:
        setup, tests = f"{setup}\n{codes[0]}", runs[0]
    else:
        tests = codes
    return Statements(tuple(tests), setup, code_of(row), entry.partition("(")[0].partition(".")[0])


def calls(name: str, pairs: Sequence[tuple[Any, Any]]) -> Calls:
    """Return calls with arguments and results as a list, or as text with JSON (arguments: one on each line)."""
    results = (json.dumps(_results(result), default=repr) for _, result in pairs)
    arguments = (repr(_arguments(inputs)) for inputs, _ in pairs)
    return Calls(name, tuple(zip(arguments, results, strict=True)))


def texts(pairs: Sequence[tuple[Any, Any]]) -> Texts:
    """Return texts to read and print, which may be lists of lines."""
    return Texts(tuple((_text(typed), _text(printed)) for typed, printed in pairs))


def parsed(text: str) -> Any:
    """Return the value of a JSON text, and all other text as it is."""
    try:
        return parse_json(text)
    except ValueError:
        return text


def is_listed(value: Any) -> bool:
    """Whether a value is a list or tuple."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _arguments(inputs: Any) -> list[Any]:
    if isinstance(inputs, str):
        return [parsed(line) for line in inputs.strip().split("\n")]
    return list(inputs) if is_listed(inputs) else [inputs]


def _results(value: Any) -> list[Any]:
    """List what is right: the value, the one that a text of JSON holds, or the one in a list of one (APPS)."""
    if isinstance(value, str):
        return [value, parsed(value)]
    return [value, value[0]] if is_listed(value) and len(value) == 1 else [value]


def _text(value: Any) -> str:
    return "\n".join(map(str, value)) if is_listed(value) else str(value)
