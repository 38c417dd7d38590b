"""Code that comes with a task: imports and helpers which the row's prompt has, and its tests use.

Sources: HumanEval (``prompt`` begins the function and may have helpers), LeetCodeDataset (``prompt`` has imports, nodes
of lists and trees, and what compares them), verl's rows (``extra_info.prefix``).
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from typing import Any

from rlinf_envs.chat_rows import value_at

_FIELDS = ("prompt", "starter_code", "extra_info.prefix")


def code_of(row: Mapping[str, Any]) -> str:
    """Return the imports, constants and helpers that the row's prompt defines, as Python; "" if it has no code."""
    texts = (value_at(row, field) for field in _FIELDS)
    return "\n".join(code for text in texts if isinstance(text, str) and (code := _definitions(text)))


def without(code: str, name: str) -> str:
    """Return ``code`` without what defines ``name``."""
    tree = ast.parse(code)
    tree.body = [node for node in tree.body if getattr(node, "name", None) != name]
    return ast.unparse(tree)


@functools.lru_cache(maxsize=4096)
def _definitions(text: str) -> str:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # prose, or a function without a body
        return ""
    return "\n".join(code for node in tree.body if (code := _definition(node)))


def _definition(node: ast.stmt) -> str:
    if isinstance(node, ast.Import | ast.Assign) or (isinstance(node, ast.ImportFrom) and node.module != "__future__"):
        # What is not installed, or prose with a sign of equality, is only missing where it is used.
        return f"try:\n    {ast.unparse(node)}\nexcept Exception:\n    pass"
    return ast.unparse(node) if isinstance(node, ast.FunctionDef | ast.ClassDef) and not _is_open(node) else ""


def _is_open(node: ast.stmt) -> bool:
    """Whether a function is left for the response to write, or all functions of a class are."""
    if isinstance(node, ast.ClassDef):
        functions = [each for each in node.body if isinstance(each, ast.FunctionDef)]
        return bool(functions) and all(map(_is_open, node.body))
    if isinstance(node, ast.FunctionDef):
        return all(map(_is_open, node.body))
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Pass) or ast.unparse(node).startswith("raise NotImplementedError")
