"""Assertions of a row's tests, so that a value of the program's own class cannot pass them by equalling everything."""

from __future__ import annotations

import ast
import functools


@functools.lru_cache(maxsize=4096)
def guarded(text: str) -> str:
    """Return ``text`` with ``_honest(...)`` around what its assertions compare, which the harness defines.

    >>> guarded("assert f(1) == 2")
    'assert _honest(f(1)) == _honest(2)'
    """
    try:
        return ast.unparse(ast.fix_missing_locations(_Guard().visit(ast.parse(text))))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text


class _Guard(ast.NodeTransformer):
    def __init__(self) -> None:
        self._asserts = False

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        self._asserts = True
        node.test = self.visit(node.test)
        self._asserts = False
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.Compare:
        self.generic_visit(node)
        if self._asserts and any(isinstance(operator, ast.Eq) for operator in node.ops):
            node.left, *node.comparators = map(_honest, (node.left, *node.comparators))
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr.startswith("assert"):  # of unittest
            node.args = [each if isinstance(each, ast.Starred) else _honest(each) for each in node.args]
        return node


def _honest(value: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("_honest", ast.Load()), [value], [])
