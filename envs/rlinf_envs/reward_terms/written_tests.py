"""Tests of programs as data sets write them: statements, functions ``test_...``, calls, and texts to read and print.

Sources: MBPP (``test_list``), HumanEval (``test``, ``entry_point``), KodCode (functions ``test_...``), APPS and TACO
(``{inputs, outputs, fn_name}``), CodeContests (``{input, output}``), PrimeIntellect and LiveCodeBench (a list of
``{input, output, type or testtype}``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlinf.base.json_text import parse_json
from rlinf_envs.errors import SettingError

_TEST_FUNCTION = re.compile(r"^def (test_?\w*)\(\s*\):", re.MULTILINE)
_CHECK = re.compile(r"^def check\(", re.MULTILINE)
_CHECKED = re.compile(r"^check\(", re.MULTILINE)


@dataclass(frozen=True)
class Statements:
    """Statements in the names of the program, each a test; ``setup`` runs before the first."""

    tests: tuple[str, ...]
    setup: str = ""

    @property
    def count(self) -> int:
        return len(self.tests)


@dataclass(frozen=True)
class Calls:
    """Calls of one function. ``name``: of a function, or of a method of the class Solution; "" if there is only one."""

    name: str
    pairs: tuple[tuple[str, str], ...]
    """Arguments of each, and the list of the results that are right, as Python writes them."""

    @property
    def count(self) -> int:
        return len(self.pairs)


@dataclass(frozen=True)
class Texts:
    """Pairs of a text that the program reads, and of the one that it has to print."""

    pairs: tuple[tuple[str, str], ...]


def tests_of(field: str, value: Any, row: Mapping[str, Any]) -> Statements | Calls | Texts:
    """Read ``value``, the contents of the row's ``field``.

    Raises:
        SettingError: there is no test in it, or it has another form.
    """
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            value = parse_json(value)
        except ValueError as error:
            raise _refused(field, f"is no JSON ({error})", value) from None
    if isinstance(value, Mapping):
        inputs, outputs = _either(value, "inputs", "input"), _either(value, "outputs", "output")
        if not _listed(inputs) or not _listed(outputs) or not len(inputs) == len(outputs) > 0:
            raise _refused(field, "needs as many inputs as outputs", value)
        return _paired(value.get("fn_name") or "", list(zip(inputs, outputs, strict=True)), bool(value.get("fn_name")))
    if _listed(value) and value and all(isinstance(each, Mapping) and "input" in each for each in value):
        kinds = {str(_either(each, "testtype", "type") or "stdin") for each in value}
        calls = bool(kinds & {"functional", "function_call"})
        if len(kinds) > 1:
            raise _refused(field, f"has tests of several kinds ({', '.join(sorted(kinds))})", value)
        name = value[0].get("fn_name") or _name_in(row)
        return _paired(name if calls else "", [(each["input"], each.get("output")) for each in value], calls)
    listed = [value] if isinstance(value, str) else list(map(str, value)) if _listed(value) else []
    if not any(each.strip() for each in listed):
        raise _refused(field, "holds no test", value)
    return _statements(field, listed, row)


def _statements(field: str, listed: list[str], row: Mapping[str, Any]) -> Statements:
    imports = row.get("test_imports") or ()
    setup = "\n".join([*map(str, imports if _listed(imports) else [imports]), str(row.get("test_setup_code") or "")])
    if len(listed) > 1:
        return Statements(tuple(listed), setup)
    text = listed[0]
    if _CHECK.search(text) and not _CHECKED.search(text):
        name = row.get("entry_point")
        if not name:
            raise _refused(field, "defines check(candidate), so the row needs entry_point", text)
        return Statements((f"check({name})",), f"{setup}\n{text}")
    functions = _TEST_FUNCTION.findall(text)
    if functions:
        return Statements(tuple(f"{name}()" for name in dict.fromkeys(functions)), f"{setup}\n{text}")
    return Statements((text,), setup)


def _paired(name: str, pairs: list[tuple[Any, Any]], calls: bool) -> Calls | Texts:
    if calls:
        return Calls(name, tuple((repr(_arguments(inputs)), repr(_results(result))) for inputs, result in pairs))
    return Texts(tuple((_text(typed), _text(printed)) for typed, printed in pairs))


def _arguments(inputs: Any) -> list[Any]:
    """Arguments as a list, or as text with one of JSON on each line."""
    if isinstance(inputs, str):
        return [_parsed(line) for line in inputs.strip().split("\n")]
    return list(inputs) if _listed(inputs) else [inputs]


def _results(value: Any) -> list[Any]:
    """List what is right: the value, the one that a text of JSON holds, or the one in a list of one (APPS)."""
    if isinstance(value, str):
        return [value, _parsed(value)]
    return [value, value[0]] if _listed(value) and len(value) == 1 else [value]


def _parsed(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return text


def _text(value: Any) -> str:
    return "\n".join(map(str, value)) if _listed(value) else str(value)


def _name_in(row: Mapping[str, Any]) -> str:
    """Return the function's name from the fields that LiveCodeBench and others have for it."""
    metadata = row.get("metadata")
    if isinstance(metadata, str) and metadata.lstrip().startswith("{"):
        metadata = json.loads(metadata)
    names = metadata if isinstance(metadata, Mapping) else {}
    return str(names.get("func_name") or row.get("fn_name") or row.get("entry_point") or "")


def _either(value: Mapping[str, Any], *names: str) -> Any:
    return next((value[name] for name in names if value.get(name) is not None), None)


def _listed(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _refused(field: str, problem: str, value: Any) -> SettingError:
    return SettingError(f"reward.code_tests: field {field} of a row {problem}, got {value!r:.80}")
