"""Arguments of calls in a Python script, read from its source: nothing of it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rlinf.config.compat.importers.written import Code, read_text
from rlinf.errors import UserError


@dataclass(frozen=True)
class Call:
    """One call by the last part of its name, with its arguments: literals, names of the script, or :class:`Code`."""

    name: str
    positional: tuple[object, ...]
    named: dict[str, object]
    line: int


@dataclass(frozen=True)
class Reference:
    """A function or class that the script names: ``module`` is its own file's name where it is defined there."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Script:
    """The calls of a script; a name stands for the literal that was assigned to it last."""

    def __init__(self, tree: ast.AST, name: str) -> None:
        self._tree = tree
        self._values: dict[str, ast.expr] = {}
        self._defined: dict[str, str] = {}
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self._values[node.targets[0].id] = node.value
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                self._defined[node.name] = name
            elif isinstance(node, ast.ImportFrom) and node.module:
                self._defined.update({alias.asname or alias.name: node.module for alias in node.names})

    @classmethod
    def read(cls, path: Path) -> Script:
        """The script in a file; raises UserError where it is no Python."""
        try:
            return cls(ast.parse(read_text(path)), path.stem)
        except SyntaxError as error:
            raise UserError(f"{path}:{error.lineno}: this is not Python: {error.msg}") from None

    def calls(self, *names: str) -> Iterator[Call]:
        """Every call of one of these names, in the order of the file."""
        found = [node for node in ast.walk(self._tree) if isinstance(node, ast.Call) and _name(node) in names]
        for node in sorted(found, key=lambda node: (node.lineno, node.col_offset)):
            named = {keyword.arg: self.value(keyword.value) for keyword in node.keywords if keyword.arg is not None}
            yield Call(_name(node), tuple(self.value(argument) for argument in node.args), named, node.lineno)

    def called(self, name: str) -> Call | None:
        """The call whose result was assigned to ``name``."""
        node = self._values.get(name)
        if not isinstance(node, ast.Call):
            return None
        return next(call for call in self.calls(_name(node)) if call.line == node.lineno)

    def value(self, node: ast.expr) -> object:
        """The value of an expression: a literal, a list or mapping of such, a reference, or code."""
        if isinstance(node, ast.List | ast.Tuple):
            return [self.value(element) for element in node.elts]
        if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            return {str(key): self.value(value) for key, value in zip(keys, node.values, strict=True)}
        if isinstance(node, ast.Call) and _name(node) == "dict" and not node.args:
            return {str(keyword.arg): self.value(keyword.value) for keyword in node.keywords}
        try:
            return ast.literal_eval(node)
        except ValueError:
            return self._named(node)

    def _named(self, node: ast.expr) -> object:
        if isinstance(node, ast.Name):
            if node.id in self._defined:
                return Reference(self._defined[node.id], node.id)
            assigned = self._values.get(node.id)
            if assigned is not None and not isinstance(assigned, ast.Name):
                found = self.value(assigned)
                return Code(node.id) if isinstance(found, Code) else found
        if isinstance(node, ast.Attribute):
            return Code(ast.unparse(node))
        return _arithmetic(node)


def literal(text: str) -> object:
    """The value of a Python expression that a file holds as text, such as RL Zoo's ``"dict(net_arch=[64, 64])"``."""
    try:
        parsed = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        return Code(text)
    return Script(parsed, "").value(parsed.body)


def _name(node: ast.Call) -> str:
    function = node.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _arithmetic(node: ast.expr) -> object:
    """Numbers such as ``4 * 2048`` and ``10 ** 6``; anything else stays code."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Pow):
        left, right = _operand(node.left), _operand(node.right)
        if left is not None and right is not None and (isinstance(node.op, ast.Mult) or abs(right) <= 64):
            return left * right if isinstance(node.op, ast.Mult) else left**right
    return Code(ast.unparse(node))


def _operand(node: ast.expr) -> int | float | None:
    value = node.value if isinstance(node, ast.Constant) else _arithmetic(node)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
