"""Tests as pytest collects them: functions ``test...``, and methods of classes ``Test...`` and ``TestCase``.

They run in the sandbox with :mod:`~rlinf_envs.reward_terms.pytest_stand_in`. What that does not have is named here,
before anything runs: a test that cannot run would fail for right programs too.

Source: the conventions for test discovery of pytest.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator

_HAS = frozenset({"raises", "approx", "param", "fail", "fixture", "mark", "main"})
_CHANGES_RESULTS = frozenset({"skip", "skipif", "xfail", "usefixtures"})
_FIXTURE_OPTIONS = frozenset({"scope", "name"})
_FIXTURES = frozenset({"self", "capsys"})

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@functools.lru_cache(maxsize=4096)
def collected(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the text without calls of its own tests, and their names: ``test_x``, or ``Class.test_x``.

    Raises:
        ValueError: it is no Python, or uses what the stand-in does not have.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"is no Python ({error})") from None
    _refuse_packages(tree)
    tests = dict(_tests_in(tree))
    if not tests:
        return text, ()
    tree.body = [statement for statement in tree.body if not _runs_tests(statement, tests)]
    _refuse_missing(tree, list(tests.values()))
    return ast.unparse(tree), tuple(tests)


def _tests_in(tree: ast.Module) -> Iterator[tuple[str, _Function]]:
    for node in tree.body:
        if isinstance(node, _Function) and node.name.startswith("test"):
            yield node.name, node
        elif isinstance(node, ast.ClassDef) and (node.name.startswith("Test") or _of_unittest(node)):
            for method in node.body:
                if isinstance(method, _Function) and method.name.startswith("test"):
                    yield f"{node.name}.{method.name}", method


def _of_unittest(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).rpartition(".")[2] == "TestCase" for base in node.bases)


def _runs_tests(statement: ast.stmt, tests: dict[str, _Function]) -> bool:
    """Whether a statement of a file only runs its tests: ``test_x()``, or what follows the check of ``__name__``."""
    if isinstance(statement, ast.If):
        return "__name__" in ast.unparse(statement.test)
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and ast.unparse(call.func) in {*tests, "unittest.main", "pytest.main"}


def _refuse_packages(tree: ast.Module) -> None:
    for node in tree.body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        for name in names:
            if name.partition(".")[0] not in {*sys.stdlib_module_names, "pytest", "solution"}:
                raise ValueError(f"imports {name}, which the sandbox does not have: leave the row out")


def _refuse_missing(tree: ast.Module, tests: list[_Function]) -> None:
    modules = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "pytest"
    }
    own: set[str] = set()  # names of pytest that the text uses
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "pytest":
            own.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in modules:
            own.add(node.attr)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value).rpartition(".")[2] == "mark":
            own.update({f"mark.{node.attr}"} if node.attr in _CHANGES_RESULTS else ())
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "fixture":
            own.update(f"fixture({option.arg}=)" for option in node.keywords if option.arg not in _FIXTURE_OPTIONS)
    missing = sorted(name for name in own if name not in _HAS and (name[0].islower()))
    if missing:
        raise ValueError(f"uses pytest.{missing[0]}, which the sandbox does not have: leave the row out")
    for test in tests:
        if isinstance(test, ast.AsyncFunctionDef):
            raise ValueError(f"has the async test {test.name}, which the sandbox does not run: leave the row out")
    _refuse_fixtures(tree, tests)


def _refuse_fixtures(tree: ast.Module, tests: list[_Function]) -> None:
    """Refuse parameters of tests that are neither cases of ``parametrize`` nor fixtures of the text."""
    functions = [node for node in ast.walk(tree) if isinstance(node, _Function)]
    fixtures = [node for node in functions if any("fixture" in ast.unparse(each) for each in node.decorator_list)]
    offered = {*_FIXTURES, *(fixture.name for fixture in fixtures)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "parametrize" and node.args:
            for each in ast.walk(node.args[0]):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    offered.update(name.strip() for name in each.value.split(","))
    for function in (*tests, *fixtures):
        arguments = function.args.args[: len(function.args.args) - len(function.args.defaults)]
        missing = [each.arg for each in arguments if each.arg not in offered]
        if missing and not any("patch" in ast.unparse(each) for each in function.decorator_list):
            raise ValueError(
                f"has the test {function.name} with the fixture {missing[0]}, which the sandbox does not have: "
                "leave the row out"
            )
