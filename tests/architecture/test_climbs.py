"""Follows the configuration through the source while a run is built, and counts how often it climbs.

The rule of the architecture review: begin at a function, and follow every call that is handed the whole configuration,
in the order in which the calls are written. Each step from a package into one of a higher layer
(``LAYERS`` of ``test_walls``) is a climb; the return from a call is a step like the call itself. So a function of a
higher layer climbs whenever it passes the whole configuration to a lower one and then goes on, and a source in which
every floor hands its own section, or a fact, to the next one has no climb at all.

The *whole configuration* is an object of ``CONFIGURATIONS``, or a tuple or a call of ``partial`` that holds one. A call
is handed it as an argument or as the object whose method is called; methods of a class are found by the annotation of
the object, or by their name where one class has it. Functions of a lambda, of ``partial`` and of a nested definition
are followed where they are written, although workers call them later. An attribute of the configuration, one that is
derived from it and kept (``config.facts``) included, is a value and no step.

``python -m tests.architecture.test_climbs`` prints the climbs of every start.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.architecture.test_walls import LAYERS

ROOT = Path(__file__).parents[2]
CONFIGURATIONS = {"Config", "ResolvedRun"}
STARTS = {
    "run": "rlinf.train.run:run",
    "text": "rlinf.train.assemble.text:build_text_graph",
    "simulator": "rlinf.train.assemble.simulator:build_simulator_graph",
    "supervised": "rlinf.train.assemble.supervised:build_supervised_graph",
}


@dataclass(frozen=True, eq=False)
class Function:
    """A function of the source, or a method, with the names of its module and its class."""

    module: Module
    node: ast.FunctionDef
    owner: str | None = None

    @property
    def name(self) -> str:
        return f"{self.module.name}:{self.owner + '.' if self.owner else ''}{self.node.name}"


@dataclass(eq=False)
class Module:
    """What a module defines, and where its imported names come from."""

    name: str
    imports: dict[str, str] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)

    @property
    def layer(self) -> int:
        part = self.name.split(".")[1]
        return next(number for number, parts in enumerate(LAYERS) if part in parts)


@dataclass(frozen=True)
class Climb:
    """One step into a higher layer."""

    where: str
    """The function in which the next line stands."""
    back_from: str


LISTED = {
    Climb("rlinf.train.assemble.setup:ResolvedRun.of", "rlinf.planning.suited:fit_to_machine"): (
        "Precision and micro-batch follow from the memory plan, which reads every section, and from the GPUs that this "
        "process sees: what comes back is the configuration of the run, which everything below is handed."
    ),
    Climb("rlinf.train.run:run", "rlinf.planning.room:require_room"): (
        "Before anything is built: a model that this machine cannot hold is refused by the memory plan."
    ),
    Climb("rlinf.train.run:build_graph", "rlinf.config.setting_origins:with_origin"): (
        "Only after building failed: the error names the file and the line of the setting that it is about."
    ),
}
"""The climbs that stay, each with its reason."""


@functools.cache
def _files() -> dict[str, Path]:
    """The files of all modules of `rlinf` that have a layer."""
    found = {}
    for path in sorted((ROOT / "rlinf").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if len(parts) > 1 and any(parts[1] in layer for layer in LAYERS):
            found[".".join(parts)] = path
    return found


@functools.cache
def _module(name: str) -> Module | None:
    path = _files().get(name)
    return None if path is None else _read(name, ast.parse(path.read_text(encoding="utf-8")))


def _read(name: str, tree: ast.Module) -> Module:
    module = Module(name)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                module.imports[alias.asname or alias.name] = f"{node.module}:{alias.name}"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            module.functions[node.name] = Function(module, node)
        elif isinstance(node, ast.ClassDef):
            module.classes[node.name] = node
            for item in node.body:
                if isinstance(item, ast.FunctionDef):
                    module.functions[f"{node.name}.{item.name}"] = Function(module, item, node.name)
    return module


def function(name: str) -> Function | None:
    """The function, method or constructor that ``module:name`` stands for; None where it is none of `rlinf`."""
    seen = set()
    while name not in seen:
        seen.add(name)
        module_name, _, inner = name.partition(":")
        module = _module(module_name)
        if module is None:
            return None
        if inner in module.functions:
            return module.functions[inner]
        owner, _, method = inner.partition(".")
        if owner in module.classes:
            return _method(module, owner, method or "__init__")
        if owner not in module.imports:
            return None
        name = module.imports[owner] + (f".{method}" if method else "")
    return None


def _method(module: Module, owner: str, method: str) -> Function | None:
    """A method of a class, or of one that it is derived from."""
    if f"{owner}.{method}" in module.functions:
        return module.functions[f"{owner}.{method}"]
    for base in module.classes[owner].bases:
        if isinstance(base, ast.Name):
            home = f"{module.name}:{base.id}" if base.id in module.classes else module.imports.get(base.id, "")
            found = function(f"{home}.{method}") if home else None
            if found is not None:
                return found
    return None


@functools.cache
def _methods_called(name: str) -> tuple[Function, ...]:
    written = (home for home, path in _files().items() if f"    def {name}(" in path.read_text(encoding="utf-8"))
    known = (module for home in written if (module := _module(home)) is not None)
    return tuple(one for module in known for one in module.functions.values() if one.owner and one.node.name == name)


def climbs(start: str) -> list[Climb]:
    """The climbs from ``module:function`` on."""
    first = function(start)
    assert first is not None, start
    found: list[Climb] = []
    _walk(first, (), found)
    return found


def _walk(here: Function, above: tuple[str, ...], found: list[Climb]) -> None:
    if here.name in above:
        return
    for callee in _handed_on(here):
        if callee.module.layer < here.module.layer:
            found.append(Climb(callee.name, here.name))
        _walk(callee, (*above, here.name), found)
        if callee.module.layer > here.module.layer:
            found.append(Climb(here.name, callee.name))


@functools.cache
def _handed_on(here: Function) -> tuple[Function, ...]:
    """The functions that ``here`` hands the whole configuration to, in order."""
    whole, kinds = _annotated(here)
    followed: list[Function] = []
    for node in _in_order(here.node):
        if isinstance(node, ast.Assign | ast.NamedExpr):
            value = node.value
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                _bind(here, target, value, whole, kinds)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            _bind(here, node.optional_vars, node.context_expr, whole, kinds)
        elif isinstance(node, ast.Call):
            called, handed = node.func, [*node.args, *(word.value for word in node.keywords)]
            if isinstance(called, ast.Attribute | ast.Name) and _last(called) == "partial":
                called, handed = node.args[0], handed[1:]
            receiver = called.value if isinstance(called, ast.Attribute) else None
            if any(_is_whole(here, item, whole) for item in [*handed, receiver] if item is not None):
                callee = _callee(here, called, kinds)
                if callee is not None:
                    followed.append(callee)
    return tuple(followed)


def _annotated(here: Function) -> tuple[set[str], dict[str, str]]:
    """(names that hold the whole configuration, the class of each other annotated name)."""
    whole, kinds = set(), {}
    arguments = here.node.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        kind = ast.unparse(argument.annotation).split(" |")[0] if argument.annotation is not None else ""
        if kind in CONFIGURATIONS:
            whole.add(argument.arg)
        kinds[argument.arg] = kind
    if here.owner:
        kinds["self"] = kinds["cls"] = here.owner
        if here.owner in CONFIGURATIONS:
            whole.add("self")
    return whole, kinds


def _bind(here: Function, target: ast.expr, value: ast.expr, whole: set[str], kinds: dict[str, str]) -> None:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for left, right in zip(target.elts, value.elts, strict=False):
            _bind(here, left, right, whole, kinds)
    elif isinstance(target, ast.Tuple) and _is_whole(here, value, whole):
        _bind(here, target.elts[0], value, whole, kinds)
    elif isinstance(target, ast.Name):
        (whole.add if _is_whole(here, value, whole) else whole.discard)(target.id)
        kinds[target.id] = _kind(here, value, kinds)


def _is_whole(here: Function, node: ast.expr, whole: set[str]) -> bool:
    """Whether an expression is the whole configuration, or holds it."""
    if isinstance(node, ast.Name):
        return node.id in whole
    if isinstance(node, ast.Attribute):
        owner = node.value
        return node.attr in ("config", "_config") and isinstance(owner, ast.Name) and owner.id in {*whole, "self"}
    if isinstance(node, ast.Starred):
        return _is_whole(here, node.value, whole)
    if isinstance(node, ast.Tuple | ast.List):
        return any(_is_whole(here, item, whole) for item in node.elts)
    if isinstance(node, ast.IfExp):
        return _is_whole(here, node.body, whole) or _is_whole(here, node.orelse, whole)
    if isinstance(node, ast.Call):
        if _last(node.func) == "replace" and node.args:
            return _is_whole(here, node.args[0], whole)
        callee = _callee(here, node.func, {})
        returned = callee.node.returns if callee is not None else None
        name = ast.unparse(returned).removeprefix("tuple[").split(",")[0] if returned is not None else ""
        return name in CONFIGURATIONS or (name == "Self" and callee is not None and callee.owner in CONFIGURATIONS)
    return False


def _callee(here: Function, called: ast.expr, kinds: dict[str, str]) -> Function | None:
    module = here.module.name
    if isinstance(called, ast.Name):
        if called.id == "cls" and here.owner:
            return function(f"{module}:{here.owner}.__init__")
        return function(f"{module}:{called.id}")
    if not isinstance(called, ast.Attribute):
        return None
    owner = called.value
    if isinstance(owner, ast.Name) and owner.id == "dataclasses":  # `replace` is the one of the library
        return None
    if isinstance(owner, ast.Name):
        known = function(f"{module}:{owner.id}.{called.attr}")
        if known is None and kinds.get(owner.id):
            known = function(f"{module}:{kinds[owner.id]}.{called.attr}")
        if known is not None:
            return known
    by_name = _methods_called(called.attr)
    return by_name[0] if len(by_name) == 1 else None


def _kind(here: Function, value: ast.expr, kinds: dict[str, str]) -> str:
    """The class of what an expression makes, as this module calls it; empty where it is not known."""
    if not isinstance(value, ast.Call):
        return ""
    if isinstance(value.func, ast.Name) and value.func.id == "cls" and here.owner:
        return here.owner
    if isinstance(value.func, ast.Name) and value.func.id[:1].isupper():
        return value.func.id
    if isinstance(value.func, ast.Attribute) and isinstance(value.func.value, ast.Name):
        owner = value.func.value.id
        if owner[:1].isupper():
            return owner
    return ""


def _last(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below ``node`` in the order in which they are evaluated: what a call is given comes before it."""
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)
        yield child


@pytest.mark.parametrize("name", STARTS)
def test_building_a_run_goes_down(name: str) -> None:
    assert [climb for climb in climbs(STARTS[name]) if climb not in LISTED] == []


def test_what_is_listed_is_still_there() -> None:
    assert set(LISTED) <= set(climbs(STARTS["run"]))


if __name__ == "__main__":
    for name, start in STARTS.items():
        steps = climbs(start)
        print(f"{name}: {len(steps)}")
        for step in steps:
            print(f"    {step.back_from} -> {step.where}")
