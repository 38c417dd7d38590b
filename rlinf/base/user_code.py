"""Functions and classes of a user's own: found by ``module:name``, and held against the call that is made of them."""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import os
import pkgutil
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import Parameter
from types import ModuleType
from typing import Any, TypeVar

from rlinf.base.errors import RunFailed, UserError
from rlinf.base.packages import missing_package

T = TypeVar("T")

_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)

_LIBRARIES = frozenset({"rlinf", "rlinf_envs", "gymnasium", "torch", "numpy", "transformers"})
_named: set[str] = set()
_importing: list[str] = []

MODULE_PATH_ADVICE = "The module must be on PYTHONPATH, or lie where the run is started."
"""What to do about a module that is not found."""


@functools.cache
def imported(name: str) -> Any:
    """Return the object that ``module:name`` names; raise a ValueError with the nearest name if there is none.

    >>> imported("math:sqrt")(4.0)
    2.0
    >>> imported("math:sqr")
    Traceback (most recent call last):
    ValueError: math:sqr cannot be imported: AttributeError: module 'math' has no attribute 'sqr' (did you mean sqrt?)
    """
    module, _, path = name.partition(":")
    if wrong := names_a_file(name):
        raise ValueError(f"{name} cannot be imported: {wrong}")
    _named.add(module.partition(".")[0])
    try:
        with importing(name):
            return functools.reduce(getattr, path.split("."), importlib.import_module(module))
    except (Exception, SystemExit) as error:  # the module may be a user's, and raise what it likes
        raise ValueError(f"{name} cannot be imported: {type(error).__name__}: {error}{nearest_name(error)}") from error


@contextmanager
def importing(name: str) -> Iterator[None]:
    """Import ``name`` of a user's own in the block: a run that its module begins meanwhile is refused.

    The module sees a command line without arguments: those of this process are not its own.
    """
    _importing.append(name)
    words, sys.argv = sys.argv, [name.partition(":")[0]]
    try:
        yield
    except SystemExit as error:
        if any(frame.name == "parse_args" for frame in traceback.extract_tb(error.__traceback__)):
            raise SystemExit(
                f"{error.code}: it reads the command line when it is imported, which has none of its arguments: give "
                'them defaults, or read it under `if __name__ == "__main__":`'
            ) from error
        raise
    finally:
        _importing.pop()
        sys.argv = words


def refuse_while_importing(call: str) -> None:
    """Raise UserError if a module of a user's own makes this ``call`` while it is imported."""
    if _importing:
        module = _importing[-1].partition(":")[0]
        raise UserError(
            f"{call} begins while {module} is imported, which a configuration names ({_importing[-1]}): it would begin "
            f'in every process. In {module}, write the call under `if __name__ == "__main__":`'
        )


def named_packages() -> Set[str]:
    """Return the packages of this process that a configuration named, without those that it names for us."""
    return _named - _LIBRARIES


def names_a_file(path: str) -> str:
    """How to write ``folder/file.py:name`` or ``folder/file:name`` as a module; empty if no file is named.

    >>> names_a_file("rewards/mine.py:short")
    'it names a file: write mine:short, and add its folder rewards to PYTHONPATH'
    """
    module, _, name = path.partition(":")
    if not module.endswith(".py") and not (name and "/" in module):
        return ""
    folder, _, file = module.removeprefix("./").rpartition("/")
    more = f", and add its folder {folder} to PYTHONPATH" if folder else ""
    return f"it names a file: write {file.removesuffix('.py')}:{name}{more}"


def other_module(module: ModuleType) -> str:
    """Explain that a module is not the one in the folder of the command, but has its name; empty if that is not so."""
    file, mine = getattr(module, "__file__", None), os.path.abspath(f"{module.__name__}.py")
    foreign = module.__name__ in sys.stdlib_module_names or "site-packages" in (file or "")
    if not foreign or not os.path.exists(mine):
        return ""
    return f" ({file or 'a module of Python itself'} has the name of {mine}: give yours another one)"


def nearest_name(error: BaseException) -> str:
    """Find the name probably meant (attribute or local module), or how to install an optional package."""
    if isinstance(error, AttributeError) and error.obj is not None:
        if isinstance(error.obj, ModuleType) and (other := other_module(error.obj)):
            return other
        return did_you_mean(error.name or "", dir(error.obj))
    missing = missing_package(error)
    if missing:
        return f" ({missing})"
    if isinstance(error, ModuleNotFoundError):
        replaced = " (gymnasium has replaced it: write `import gymnasium as gym`)" if error.name == "gym" else ""
        return replaced or nearest_module(error.name or "")
    return ""


def nearest_module(name: str) -> str:
    """Find the module in the folder of the command that was most likely meant."""
    return did_you_mean(name, (module.name for module in pkgutil.iter_modules([os.getcwd()])))


def did_you_mean(name: str, known: Iterable[str], *, before: str = "") -> str:
    """``before`` is what the whole name begins with.

    >>> did_you_mean("promt", ["prompt", "response"]), did_you_mean("x", ["prompt"])
    (' (did you mean prompt?)', '')
    """
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {before}{close[0]}?)" if close else ""


def own_parameters(result: object, *, behind: int) -> list[Parameter]:
    """Return the parameters of a function or class that are given by name, after ``behind`` positional ones.

    The list is empty for an object that cannot be called or that has no readable signature."""
    try:
        parameters = list(inspect.signature(result).parameters.values()) if callable(result) else []
    except ValueError:  # a function in C
        parameters = []
    placed = _positional(parameters)[:behind]
    return [parameter for parameter in parameters if parameter not in placed and parameter.kind in _BY_NAME]


@dataclass(frozen=True)
class Signature:
    """The arguments that a user's function or class is called with."""

    positional: tuple[str, ...] = ()
    """Positional ones, each in words: ``("an AdvantageInputs",)``."""
    names: tuple[str, ...] = ()
    """Those given by name."""
    makes: bool = False
    """Whether a class may be named, of which the call makes an object."""

    def misfit(self, result: object, options: Collection[str] = ()) -> str:
        """Explain why ``result`` cannot be called so, as the end of a sentence that begins with its name; "" if it can.

        ``options``: what else may be given by name.

        >>> Signature(names=("prompt", "answer")).misfit(lambda *, promt, **rest: 1.0)
        'requires promt (did you mean prompt?), and is called with prompt=, answer='
        """
        if inspect.isclass(result) and not self.makes:
            return f"is a class, and what is called with {self} must be a function"
        if not callable(result):
            return f"is {kind_of(result)}, and must be a function that is called with {self}"
        try:
            parameters = list(inspect.signature(result).parameters.values())
        except ValueError:  # a function in C may not describe its arguments
            return ""
        faults = [*self._not_taken(parameters), *self._required(parameters, options)]
        return f"{' and '.join(faults)}, and is called with {self}" if faults else ""

    def __str__(self) -> str:
        return ", ".join([*self.positional, *(f"{name}=" for name in self.names)]) or "no argument"

    def _not_taken(self, parameters: list[Parameter]) -> list[str]:
        kinds = {parameter.kind for parameter in parameters}
        faults = []
        if len(_positional(parameters)) < len(self.positional) and Parameter.VAR_POSITIONAL not in kinds:
            count = len(_positional(parameters))
            faults.append(f"takes {count or 'no'} positional argument{'' if count == 1 else 's'}")
        named = {parameter.name for parameter in self._behind(parameters) if parameter.kind in _BY_NAME}
        missing = [name for name in self.names if name not in named]
        if missing and Parameter.VAR_KEYWORD not in kinds:
            faults.append(f"has no parameter {_listed(missing)}")
        return faults

    def _required(self, parameters: list[Parameter], options: Collection[str]) -> list[str]:
        names = (*self.names, *options)
        required = [
            f"{parameter.name}{did_you_mean(parameter.name, names)}"
            for parameter in self._behind(parameters)
            if parameter.default is Parameter.empty
            and parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
            and (parameter.kind not in _BY_NAME or parameter.name not in names)
        ]
        return [f"requires {_listed(required)}"] if required else []

    def _behind(self, parameters: list[Parameter]) -> list[Parameter]:
        """Return the parameters that no positional argument goes to."""
        taken = _positional(parameters)[: len(self.positional)]
        return [parameter for parameter in parameters if parameter not in taken]


def _positional(parameters: list[Parameter]) -> list[Parameter]:
    return [parameter for parameter in parameters if parameter.kind in _POSITIONAL]


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def returned(value: object, kind: type[T], called: str) -> T:
    """Return ``value``, the result of ``called``; raise RunFailed, for its user to correct, if its kind is another."""
    if not isinstance(value, kind):
        fields = next(iter(getattr(kind, "__dataclass_fields__", {})), None)
        form = f"{kind.__name__}({fields}=...)" if fields else kind.__name__
        raise RunFailed(f"{called} returned {kind_of(value)}, and must return {form}")
    return value


def kind_of(result: object) -> str:
    """
    >>> kind_of(1), kind_of(kind_of), kind_of(None)
    ('an int', 'a function', 'None')
    """
    name = type(result).__name__
    return "None" if result is None else f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
