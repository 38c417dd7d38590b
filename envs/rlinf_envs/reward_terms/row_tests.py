"""Tests of programs in the fields of a row.

Sources: MBPP (``test_list``), AceCode (``test_cases``), HumanEval and LeetCodeDataset (``test``, ``entry_point``),
KodCode (functions ``test_...``), APPS and TACO (``{inputs, outputs, fn_name}``), CodeContests (``{input, output}``),
PrimeIntellect, LiveCodeBench and DeepCoder (a list of ``{input, output, type or testtype}``), SYNTHETIC-1
(``verification_info``), rStar-Coder (columns ``inputs`` and ``outputs``), verl (``reward_model.ground_truth``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rlinf.base.json_text import written_value
from rlinf_envs.chat_rows import value_at
from rlinf_envs.errors import SettingError
from rlinf_envs.reward_terms.answering import row_value
from rlinf_envs.reward_terms.packed_tests import unpacked
from rlinf_envs.reward_terms.written_tests import Calls, Statements, Texts, calls, is_listed, parsed, statements, texts

_METHOD = re.compile(r"^[ \t]*def[ ]+(?!__)(\w+)\(", re.MULTILINE)
_AROUND = ("test_cases", "ground_truth", "assert_case", "functional", "pytest", "tests")
"""Fields of an object that hold the tests."""
_COLUMNS = {"inputs": "outputs", "input": "output"}
_PYTHON = (None, "", "python", "python3", "py")


def tests_of(fields: Sequence[str], row: Mapping[str, Any]) -> Statements | Calls | Texts:
    """Read the tests in the row's ``fields`` (dots reach into objects), which are all of one kind.

    Raises:
        SettingError: a field is not there, there is no test in them, or they have another form.
    """
    read = [_tests_in(field, _value(field, row), row) for field in fields]
    parts = [part for part in read if part.count]
    if not parts:
        raise _refused(fields[0], "holds no test", value_at(row, fields[0]))
    first = parts[0]
    if len(parts) == 1:
        return first
    pairs = tuple(pair for part in parts if not isinstance(part, Statements) for pair in part.pairs)
    if isinstance(first, Texts) and all(isinstance(part, Texts) for part in parts):
        return Texts(pairs)
    if isinstance(first, Calls) and all(isinstance(part, Calls) and part.name == first.name for part in parts):
        return Calls(first.name, pairs)
    raise SettingError(f"reward.code_tests: fields {', '.join(fields)} of a row hold tests of several kinds")


def _value(field: str, row: Mapping[str, Any]) -> Any:
    """Return a field's value. Inputs in a column of their own come with the outputs of the next one."""
    value = value_at(row, field)
    if value is None:
        return row_value("code_tests", field, row)
    outputs = row.get(_COLUMNS.get(field, ""))
    if outputs is None:
        return value
    inputs, outputs, name = _opened(field, value), _opened(field, outputs), _name_in(row)
    if name and is_listed(inputs) and is_listed(outputs):
        inputs, outputs = ([parsed(each) if isinstance(each, str) else each for each in s] for s in (inputs, outputs))
    return {"inputs": inputs, "outputs": outputs, "fn_name": name}


def _tests_in(field: str, value: Any, row: Mapping[str, Any]) -> Statements | Calls | Texts:
    value = _opened(field, value)
    if isinstance(value, Mapping):
        inputs, outputs = _either(value, "inputs", "input"), _either(value, "outputs", "output")
        if not is_listed(inputs) or not is_listed(outputs) or len(inputs) != len(outputs):
            raise _refused(field, "needs as many inputs as outputs", value)
        pairs, name = list(zip(inputs, outputs, strict=True)), value.get("fn_name")
        return calls(name, pairs) if name else texts(pairs)
    if is_listed(value) and value and all(isinstance(each, Mapping) and "input" in each for each in value):
        kinds = {str(_either(each, "testtype", "type") or "stdin") for each in value}
        if len(kinds) > 1:
            raise _refused(field, f"has tests of several kinds ({', '.join(sorted(kinds))})", value)
        pairs = [(each["input"], each.get("output")) for each in value]
        name = value[0].get("fn_name") or _name_in(value[0]) or _name_in(row)
        return calls(name, pairs) if kinds & {"functional", "function_call"} else texts(pairs)
    listed = [value] if isinstance(value, str) else list(map(str, value)) if is_listed(value) else []
    if not any(each.strip() for each in listed):
        return Statements(())
    try:
        return statements(listed, row)
    except ValueError as error:
        raise _refused(field, str(error), listed[0]) from None


def _opened(field: str, value: Any) -> Any:
    """Return what a text of JSON or a packed text holds, and the tests of an object with other fields."""
    if isinstance(value, str):
        value = _read(field, value)
        return value if isinstance(value, str) else _opened(field, value)
    inner = _either(value, *_AROUND) if isinstance(value, Mapping) and _either(value, *_COLUMNS) is None else None
    if inner is None:
        return value
    if value.get("language") not in _PYTHON:
        raise _refused(field, f"has tests of programs in {value['language']}, and Python alone runs", value)
    return _opened(field, inner)


def _read(field: str, text: str) -> Any:
    try:
        content = unpacked(text) or text
    except ValueError as error:
        raise _refused(field, str(error), text) from None
    if content.lstrip()[:1] not in ("{", "["):
        return content
    try:
        return written_value(content)
    except ValueError as error:
        raise _refused(field, f"is no JSON ({error})", content) from None


def _name_in(row: Mapping[str, Any]) -> str:
    """Return the function's name from the fields that LiveCodeBench and others have for it, or from the first lines."""
    name = value_at(row, "metadata.func_name") or row.get("fn_name") or row.get("entry_point")
    if name:
        return str(name).rpartition(".")[2]
    return next(reversed(_METHOD.findall(str(row.get("starter_code") or ""))), "")


def _either(value: Mapping[str, Any], *names: str) -> Any:
    return next((value[name] for name in names if value.get(name) is not None), None)


def _refused(field: str, problem: str, value: Any) -> SettingError:
    return SettingError(f"reward.code_tests: field {field} of a row {problem}, got {value!r:.80}")
