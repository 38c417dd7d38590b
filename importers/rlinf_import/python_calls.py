"""Arguments of calls in a Python script, read from its source: nothing of it runs."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rlinf.base.errors import UserError
from rlinf.base.json_files import read_json_file
from rlinf_import.written import Code, read_text


@dataclass(frozen=True)
class Call:
    """One call by the last part of its name, with its arguments: literals, names of the script, or :class:`Code`."""

    name: str
    positional: tuple[object, ...]
    named: dict[str, object]
    line: int
    owner: str = ""
    """What a method is called on, as ``AutoModel`` in ``AutoModel.from_pretrained(...)``."""
    looped: bool = False
    """Whether it is written inside of a loop."""

    def arguments(self, *names: str) -> dict[str, object]:
        """Return all arguments by name, of which ``names`` are those by position; further ones are `argument N`."""
        beyond = range(len(names) + 1, len(self.positional) + 1)
        given = [*names[: len(self.positional)], *(f"argument {number}" for number in beyond)]
        return dict(zip(given, self.positional, strict=True)) | self.named


@dataclass(frozen=True)
class Reference:
    """A function or class that the script names: ``module`` is its own file's name if it is defined there."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Script:
    """The calls of a script; a name stands for the literal that was assigned to it last."""

    def __init__(self, tree: ast.AST, name: str) -> None:
        self._tree = tree
        _unalias(tree)
        self._values: dict[str, ast.expr] = {}
        self._defined: dict[str, str] = {}
        self._entries: dict[str, dict[str, ast.expr]] = {}
        """What is put into a mapping after it was made, by its name."""
        self._arguments: dict[str, ast.expr] = {}
        """Defaults of the arguments that the script reads from its command line."""
        self._parameters = _parameters(tree)
        """The values that functions get, by the node that names a parameter."""
        loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While)]
        self._looped = {id(inner) for loop in loops for inner in ast.walk(loop)}
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self._values[node.targets[0].id] = node.value
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
                first = node.targets[0].elts[0]  # model, tokenizer = load(...)
                if isinstance(first, ast.Name) and isinstance(node.value, ast.Call):
                    self._values[first.id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                self._values[node.target.id] = node.value
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
                target = node.targets[0]
                if isinstance(target.value, ast.Name) and isinstance(target.slice, ast.Constant):
                    self._entries.setdefault(target.value.id, {})[str(target.slice.value)] = node.value
            elif (
                isinstance(node, ast.AugAssign) and isinstance(node.op, ast.BitOr) and isinstance(node.value, ast.Dict)
            ):
                added = {ast.literal_eval(key): value for key, value in _literal_keys(node.value)}
                self._entries.setdefault(ast.unparse(node.target), {}).update(added)
            elif isinstance(node, ast.Call) and _name(node) == "add_argument":
                self._arguments.update(_default_of(node))
            elif isinstance(node, ast.Call) and _name(node) == "update" and isinstance(node.func, ast.Attribute):
                added = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg is not None}
                self._entries.setdefault(ast.unparse(node.func.value), {}).update(added)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                self._defined[node.name] = name
            elif isinstance(node, ast.ImportFrom) and node.module:
                self._defined.update({_called(alias): node.module for alias in node.names})

    @classmethod
    def read(cls, path: Path) -> Script:
        """Read the script in a file, or the cells of a notebook; raise UserError if it is no Python."""
        text = _cells(path) if path.suffix == ".ipynb" else read_text(path)
        try:
            return cls(ast.parse(_MAGIC.sub(r"\1pass", text)), path.stem)
        except SyntaxError:
            pass
        try:  # a line may begin with % as a part of an expression
            return cls(ast.parse(text), path.stem)
        except SyntaxError as error:
            raise UserError(f"{path}:{error.lineno}: this is not Python: {error.msg}") from None

    def calls(self, *names: str) -> Iterator[Call]:
        """Every call of one of these names, in the order of the file."""
        results = [node for node in ast.walk(self._tree) if isinstance(node, ast.Call) and _name(node) in names]
        for node in sorted(results, key=lambda node: (node.lineno, node.col_offset)):
            yield self._call(node)

    def calls_ending(self, ending: str) -> Iterator[Call]:
        """Every call of a name that ends so, in the order of the file."""
        names = {_name(node) for node in ast.walk(self._tree) if isinstance(node, ast.Call)}
        yield from self.calls(*(name for name in names if name.endswith(ending)))

    def calls_from(self, *modules: str) -> Iterator[Call]:
        """Every call of a function or class that comes from one of these modules, by import or by attribute.

        They come in the order in which Python makes them: an argument before the call that it is given to.
        """
        names = {name for name, module in self._defined.items() if module in modules}
        nodes = [node for node in ast.walk(self._tree) if isinstance(node, ast.Call)]
        for node in sorted(nodes, key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0)):
            function = node.func
            written = ast.unparse(function.value) if isinstance(function, ast.Attribute) else ""
            if (isinstance(function, ast.Name) and function.id in names) or written in modules:
                yield self._call(node)

    def assigned(self, name: str) -> object:
        """Return the value that a name has in the end; None if nothing was assigned to it."""
        node = self._values.get(name)
        return None if node is None else self.value(node)

    def attributes(self, *objects: str) -> Iterator[tuple[str, object, int]]:
        """(name, value, line) of every ``object.name = value``."""
        for node in ast.walk(self._tree):
            if not isinstance(node, ast.Assign) or len(node.targets) != 1:
                continue
            target = node.targets[0]
            of_name = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
            if isinstance(target, ast.Attribute) and of_name and ast.unparse(target.value) in objects:
                yield target.attr, self.value(node.value), node.lineno

    def nodes(self, kind: type[ast.AST]) -> Iterator[ast.AST]:
        """Every node of a kind."""
        yield from (node for node in ast.walk(self._tree) if isinstance(node, kind))

    def imports(self, *names: str) -> list[str]:
        """Which of these names the script imports."""
        return [name for name in names if name in self._defined]

    def names_for(self, *calls: str) -> list[str]:
        """Return the names that the results of these calls are assigned to."""
        values = self._values.items()
        return [name for name, node in values if isinstance(node, ast.Call) and _name(node) in calls]

    def assigning_lines(self, names: Collection[str]) -> set[int]:
        """Return the lines of the statements that assign something to one of these names."""
        lines: set[int] = set()
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Assign) and any(ast.unparse(target) in names for target in node.targets):
                lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        return lines

    def called(self, name: str) -> Call | None:
        """Return the call whose result was assigned to ``name``."""
        node = self._values.get(name)
        if not isinstance(node, ast.Call):
            return None
        return self._call(node)

    def value(self, node: ast.expr) -> object:
        """Evaluate an expression: a literal, a list or mapping of such, a reference, or code."""
        if isinstance(node, ast.List | ast.Tuple):
            return [self.value(element) for element in node.elts]
        repeated = self._repeated(node)
        if repeated is not None:
            return repeated
        if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            return {str(key): self.value(value) for key, value in zip(keys, node.values, strict=True)}
        if isinstance(node, ast.Call) and _name(node) == "dict" and not node.args:
            return self._keywords(node)
        if isinstance(node, ast.Call) and len(node.args) == 2 and ast.unparse(node.func) in _FROM_ENVIRONMENT:
            return self.value(node.args[1])
        joins = isinstance(node, ast.JoinedStr) or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add))
        if joins and (text := self._text(node)) is not None:
            return text
        if isinstance(node, ast.IfExp) and (truth := self._compared(node.test)) is not None:
            return self.value(node.body if truth else node.orelse)
        try:
            plain = ast.literal_eval(node)
        except ValueError:
            return self._named(node)
        return Code("...") if plain is ... else plain

    def _text(self, node: ast.expr) -> str | None:
        """Put together texts of known parts, ``f"{NAME}/a"`` and ``NAME + "/a"``; None for anything else."""
        if isinstance(node, ast.JoinedStr):
            parts = [self._text(part) for part in node.values]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts = [self._text(node.left), self._text(node.right)]
        elif isinstance(node, ast.FormattedValue):
            known = self.value(node.value)
            plain = isinstance(known, str | int | float) and node.format_spec is None and node.conversion == -1
            return str(known) if plain else None
        else:
            known = self.value(node)
            return known if isinstance(known, str) else None
        return None if None in parts else "".join(str(part) for part in parts)

    def _compared(self, node: ast.expr) -> bool | None:
        """Evaluate a flag, or ``==`` and ``!=`` of known values; None for anything else."""
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Eq | ast.NotEq) or len(node.ops) > 1:
            known = self.value(node)
            return known if isinstance(known, bool) else None
        left, right = self.value(node.left), self.value(node.comparators[0])
        if isinstance(left, Code | Reference) or isinstance(right, Code | Reference):
            return None
        return (left == right) is isinstance(node.ops[0], ast.Eq)

    def _repeated(self, node: ast.expr) -> list[object] | None:
        """Read ``[make(i) for i in range(8)]`` and ``[make] * 8`` as lists of eight; None for anything else."""
        count: object = None
        parts: list[object] = []
        if isinstance(node, ast.ListComp) and len(node.generators) == 1 and not node.generators[0].ifs:
            over = node.generators[0].iter
            if isinstance(over, ast.Call) and _name(over) == "range" and len(over.args) == 1:
                count, parts = self.value(over.args[0]), [Code(ast.unparse(node.elt))]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.left, ast.List):
            count, parts = self.value(node.right), [self.value(element) for element in node.left.elts]
        return parts * count if isinstance(count, int) and 0 <= count <= _LONGEST_LIST else None

    def _call(self, node: ast.Call) -> Call:
        owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        given = tuple(self.value(argument) for argument in node.args)
        return Call(_name(node), given, self._keywords(node), node.lineno, owner, id(node) in self._looped)

    def _keywords(self, node: ast.Call) -> dict[str, object]:
        """Return the arguments by name, with those of a mapping (``**options``) as far as the script writes it out."""
        named: dict[str, object] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value)
            if keyword.arg is not None:
                named[keyword.arg] = value
            elif isinstance(value, dict):
                later = self._entries.get(ast.unparse(keyword.value), {})
                named |= value | {name: self.value(entry) for name, entry in later.items()}
            else:
                named[f"**{ast.unparse(keyword.value)}"] = Code(ast.unparse(keyword.value))
        return named

    def _named(self, node: ast.expr) -> object:
        if isinstance(node, ast.Name):
            if node.id in self._defined:
                return Reference(self._defined[node.id], node.id)
            assigned = self._values.get(node.id)
            if assigned is not None and not isinstance(assigned, ast.Name):
                del self._values[node.id]  # path = f"{path}/more" has no end
                result = self.value(assigned)
                self._values[node.id] = assigned
                return Code(node.id) if isinstance(result, Code) else result
            bound = self._parameters.pop(id(node), None) if assigned is None else None
            if bound is not None:  # a function that calls itself has no end
                result = self.value(bound)
                self._parameters[id(node)] = bound
                return Code(node.id) if isinstance(result, Code) else result
        if isinstance(node, ast.Attribute):
            parsed = self._values.get(ast.unparse(node.value))
            if isinstance(parsed, ast.Call) and _name(parsed) == "parse_args" and node.attr in self._arguments:
                return self.value(self._arguments[node.attr])
            return Code(ast.unparse(node))
        return _arithmetic(node)


def _cells(path: Path) -> str:
    """Return the code of a notebook; raise UserError if the file is no notebook."""
    cells = (read_json_file(path) or {}).get("cells")
    if not isinstance(cells, list):
        raise UserError(f"{path} is no notebook: it has no cells")
    return "\n".join("".join(cell.get("source", "")) for cell in cells if cell.get("cell_type") == "code")


def _literal_keys(node: ast.Dict) -> Iterator[tuple[ast.expr, ast.expr]]:
    pairs = zip(node.keys, node.values, strict=True)
    yield from ((key, value) for key, value in pairs if isinstance(key, ast.Constant))


def _default_of(node: ast.Call) -> dict[str, ast.expr]:
    """Return the default of an ``add_argument`` by the argument's name; nothing if it has none."""
    named = {keyword.arg: keyword.value for keyword in node.keywords}
    words = [str(word.value) for word in node.args if isinstance(word, ast.Constant)]
    dest = named.get("dest")
    # argparse takes the first long option.
    name = next((word for word in words if word.startswith("--")), words[0] if words else "")
    name = str(dest.value) if isinstance(dest, ast.Constant) else name.lstrip("-").replace("-", "_")
    return {name: named["default"]} if name and "default" in named else {}


def _parameters(tree: ast.AST) -> dict[int, ast.expr]:
    """Return what stands for the parameters that a function's body names: the first call's argument, or the default."""
    calls: dict[str, ast.Call] = {}
    functions: list[ast.FunctionDef] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            calls.setdefault(node.func.id, node)
        elif isinstance(node, ast.FunctionDef):
            functions.append(node)
    results: dict[int, ast.expr] = {}
    for function in functions:
        names = [argument.arg for argument in function.args.args]
        defaults = function.args.defaults
        bound = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
        options = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        bound.update({option.arg: default for option, default in options if default is not None})
        call = calls.get(function.name)
        if call is not None:
            bound.update(dict(zip(names, call.args, strict=False)))
            bound.update({keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None})
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and node.id in bound and bound[node.id] is not node:
                results[id(node)] = bound[node.id]
    return results


def _called(alias: ast.alias) -> str:
    """Return the name that an import is read under: a class keeps its own."""
    return alias.name if alias.asname is None or alias.name[0].isupper() else alias.asname


def _unalias(tree: ast.AST) -> None:
    """Give classes that are imported under another name (``import PPO as Agent``) their own."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    own = {alias.asname: _called(alias) for node in imports for alias in node.names if alias.asname}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = own.get(node.id, node.id)


def literal(text: str) -> object:
    """Evaluate a Python expression that a file holds as text, such as RL Zoo's ``"dict(net_arch=[64, 64])"``."""
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


SCRIPTS = (".py", ".ipynb")
"""Suffixes of files that :meth:`Script.read` reads."""
_MAGIC = re.compile(r"^([ \t]*)[!%].*$", re.MULTILINE)
"""Lines of a notebook that are no Python: ``!pip install``, ``%cd``."""
_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}
_CASTS: Mapping[str, Callable[[float], float]] = {"int": int, "float": float, "round": round}
_FROM_ENVIRONMENT = ("os.environ.get", "os.getenv", "environ.get", "getenv")
"""Calls whose second argument stands where the environment does not set the variable."""
_LARGEST_POWER = 64
_LONGEST_LIST = 10_000


def _arithmetic(node: ast.expr) -> object:
    """Numbers such as ``4 * 2048``, ``int(1e5)`` and ``10 ** 6``; anything else stays code."""
    result = _number(node)
    return Code(ast.unparse(node)) if result is None else result


def _number(node: ast.expr) -> float | None:
    if isinstance(node, ast.Constant):
        given = node.value
        return given if isinstance(given, int | float) and not isinstance(given, bool) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Call) and _name(node) in _CASTS and len(node.args) == 1 and not node.keywords:
        inner = _number(node.args[0])
        return None if inner is None else _CASTS[_name(node)](inner)
    if not isinstance(node, ast.BinOp) or type(node.op) not in _OPERATORS:
        return None
    left, right = _number(node.left), _number(node.right)
    if left is None or right is None or (isinstance(node.op, ast.Pow) and abs(right) > _LARGEST_POWER):
        return None
    try:
        return _OPERATORS[type(node.op)](left, right)
    except (ZeroDivisionError, OverflowError):
        return None
