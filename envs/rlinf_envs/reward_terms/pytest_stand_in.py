"""A stand-in for pytest in the sandbox, which has the standard library alone.

The text of this module runs there under the name ``pytest``, so that tests of data sets (KodCode) can import it. It has
``raises``, ``approx``, ``param``, ``fail``, ``fixture`` (of one function), ``mark.parametrize``, and the fixture
``capsys``. :mod:`~rlinf_envs.reward_terms.pytest_tests` names what else a row uses before anything runs.
"""

from __future__ import annotations

import collections
import contextlib
import io
import itertools
import re
import sys
from collections.abc import Iterator, Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than most tests take to run
    from collections.abc import Callable, Iterable
    from typing import Any

_OWN_NUMBERS = ("builtins", "decimal", "fractions")
"""Modules whose numbers ``approx`` compares: the number of a program's own class decides itself what it equals."""


class raises:
    def __init__(self, expected: Any, *call: Any, match: str | None = None, **options: Any) -> None:
        self.type, self._match, self.value = expected, match, None
        if call:
            with self:
                call[0](*call[1:], **options)

    def __enter__(self) -> raises:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if kind is None:
            raise AssertionError(f"did not raise {self.type}")
        if not issubclass(kind, self.type):
            return False
        self.type, self.value = kind, error  # type: ignore[assignment]
        return self._match is None or self.match(self._match)

    def match(self, pattern: str) -> bool:
        """Whether the error's text has a part of this form, else AssertionError."""
        if re.search(pattern, str(self.value)) is None:
            raise AssertionError(f"{pattern!r} does not match {str(self.value)!r}")
        return True


class approx:
    """A number, or numbers in lists and mappings, that others equal up to a tolerance: pytest's, 1e-6 and 1e-12."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, expected: Any, rel: float | None = None, abs: float | None = None, nan_ok: bool = False) -> None:
        self._expected, self._rel, self._abs, self._nan_ok = expected, rel, abs, nan_ok

    def __eq__(self, actual: object) -> bool:
        return self._same(actual, self._expected)

    def _same(self, actual: Any, expected: Any) -> bool:
        if isinstance(expected, Mapping):
            return actual.keys() == expected.keys() and all(self._same(actual[key], expected[key]) for key in expected)
        if isinstance(expected, (list, tuple)):
            return len(actual) == len(expected) and all(map(self._same, actual, expected))
        if type(actual).__module__ not in _OWN_NUMBERS:
            return False
        if isinstance(expected, (str, bool, type(None))) or isinstance(actual, (str, bool, type(None))):
            return bool(actual == expected)
        if actual == expected or (expected != expected and actual != actual and self._nan_ok):
            return True
        distance, size = (actual - expected).__abs__(), expected.__abs__()
        bounds = [] if self._rel is None and self._abs is not None else [size * type(size)(self._rel or 1e-6)]
        bounds.append(type(size)(1e-12 if self._abs is None else self._abs))
        return bool(size != float("inf") and distance <= max(bounds))


def param(*values: Any, id: str | None = None, marks: object = ()) -> tuple[Any, ...]:
    """Return the values of one case."""
    return _Case(values)


def fail(reason: str = "", pytrace: bool = True) -> None:
    """Fail the test that runs."""
    raise AssertionError(reason)


def main(*arguments: Any) -> int:
    """Do nothing: the tests of the file run in any case."""
    return 0


def fixture(function: Any = None, **options: Any) -> Any:
    """Mark a function whose result tests take by its name."""
    if function is None:
        return fixture
    function.is_fixture = True
    return function


class _Case(tuple):
    """Values of ``param``."""


class _Marks:
    def __getattr__(self, name: str) -> Any:
        return self._parametrize if name == "parametrize" else _unchanged

    @staticmethod
    def _parametrize(names: str | Iterable[str], values: Iterable[Any], **options: Any) -> Any:
        listed = [name.strip() for name in names.split(",") if name.strip()] if isinstance(names, str) else list(names)
        several = not isinstance(names, str) or len(listed) > 1
        cases = [value if several or isinstance(value, _Case) else (value,) for value in values]

        def decorate(test: Any) -> Any:
            test.cases = [*getattr(test, "cases", ()), [dict(zip(listed, case, strict=True)) for case in cases]]
            return test

        return decorate


def _unchanged(*arguments: Any, **options: Any) -> Any:
    """Return a marked function as it is: this mark changes no result, with arguments or without."""
    return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else _unchanged


mark = _Marks()


_Result = collections.namedtuple("_Result", "out err")


class _Printed:
    """The fixture ``capsys``."""

    def readouterr(self) -> Any:
        """Return what was printed since the last call."""
        texts = [sys.stdout.getvalue(), sys.stderr.getvalue()]  # type: ignore[union-attr]
        sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
        return _Result(*texts)


def run_test(names: Mapping[str, Any], path: str) -> None:
    """Run the test ``path``, a function or ``Class.method`` of ``names``, in all its cases."""
    holder, _, method = path.rpartition(".")
    kind = names[holder] if holder else None
    if kind is not None and hasattr(kind, "assertEqual"):
        _run_unittest(kind, method)
        return
    test = getattr(kind, method) if kind else names[method]
    for chosen in itertools.product(*getattr(kind, "cases", ()), *getattr(test, "cases", ())):
        case = {name: value for values in chosen for name, value in values.items()}
        if kind is None:
            _call(names, test, case)
            continue
        instance = kind()
        _prepare(instance, "setup_class")
        _prepare(instance, "setup_method")
        try:
            _call(names, getattr(instance, method), case)
        finally:
            _prepare(instance, "teardown_method")


def _run_unittest(kind: Any, method: str) -> None:
    import unittest

    result = unittest.TestResult()
    kind(method).run(result)
    if not result.wasSuccessful() or result.skipped or result.testsRun != 1:
        raise AssertionError(method)


def _prepare(instance: Any, name: str) -> None:
    function = getattr(instance, name, None)
    if function is not None:
        function(*[None] * len(_required(function)))


def _call(names: Mapping[str, Any], test: Callable[..., Any], case: Mapping[str, Any]) -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        made: dict[str, Any] = {"capsys": _Printed(), **case}
        test(**{name: _argument(names, name, made, stack) for name in _required(test)})


def _argument(names: Mapping[str, Any], name: str, made: dict[str, Any], stack: contextlib.ExitStack) -> Any:
    """Return the value of a case, or the result of the fixture, once for each test."""
    if name not in made:
        function = names[name]
        value = function(**{each: _argument(names, each, made, stack) for each in _required(function)})
        made[name] = stack.enter_context(_finished(value)) if isinstance(value, Iterator) else value
    return made[name]


@contextlib.contextmanager
def _finished(steps: Iterator[Any]) -> Iterator[Any]:
    yield next(steps)
    next(steps, None)


def _required(function: Any) -> list[str]:
    """Return the names of the parameters without a default, without ``self``."""
    code = getattr(function, "__code__", None)
    if code is None:
        return []
    names = code.co_varnames[: code.co_argcount - len(function.__defaults__ or ())]
    return list(names[1:] if hasattr(function, "__self__") else names)
