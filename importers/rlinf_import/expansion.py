"""Expansion of shell words: variables, arithmetic, and what other commands print, which stays unknown."""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Callable, Mapping

VARIABLE = re.compile(r"\$\{(\w+)(?::?([-=+])((?:[^{}]|\{[^{}]*\})*))?\}|\$(\w+)")
OTHER = re.compile(r"\$\{(?:[!#]\w+[^{}]*|\w+(?:\[[^\]]*\]|[#%^,/@?]|:[\d?])[^{}]*)\}")
"""Expansions that are not computed, such as ``${MODEL##*/}``."""
ARITHMETIC = re.compile(r"\$\(\(((?:[^()]|\([^()]*\))*)\)\)")
COMMAND = re.compile(r"\$\((?:[^()]|\([^()]*\))*\)|`[^`]*`")
UNKNOWN = "\N{REPLACEMENT CHARACTER}"
_OPERATORS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def plain(value: str) -> str:
    """Return a value without its quotation marks."""
    if ARITHMETIC.search(value) or COMMAND.search(value):
        return value.strip('"')
    return " ".join(shlex.split(value, comments=True))


def expanded(variables: Mapping[str, str], text: str, unset: str | None = None) -> str:
    """Fill in variables; one that the script does not set becomes ``unset``, or stays by its name as unknown."""
    text = OTHER.sub(UNKNOWN, COMMAND.sub(UNKNOWN, calculated(variables, text)))
    return _filled(variables, text, unset)


def _filled(variables: Mapping[str, str], text: str, unset: str | None = None) -> str:
    def variable(match: re.Match[str]) -> str:
        name, sign, word, bare = match.groups()
        value = variables.get(name or bare)
        other = expanded(variables, word, unset).strip("\"'") if word else ""
        if sign == "+":
            return other if value else ""
        if value is None and sign is None:
            return f"{UNKNOWN}${name or bare}" if unset is None else unset
        return value or other

    return VARIABLE.sub(variable, text)


def calculated(variables: Mapping[str, str], text: str) -> str:
    """Replace the arithmetic in the text by its results, as far as they are known."""

    def result(match: re.Match[str]) -> str:
        value = _integer(_filled(variables, match.group(1)), variables)
        return UNKNOWN if value is None else str(value)

    return ARITHMETIC.sub(result, text)


def _integer(text: str, variables: Mapping[str, str]) -> int | None:
    """Integer arithmetic of literals and variables; None if it is anything else."""

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name):
            return int(variables[node.id])
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        raise ValueError(text)

    try:
        return value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError):
        return None
