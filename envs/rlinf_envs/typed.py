"""Settings checked against the types of their parameters: YAML reads other types than a person writes.

``answer_format: ####`` is null, ``system_prompt: no`` a switch and ``system_prompt: Answer: yes`` a mapping.
A constructor under :func:`typed` refuses all of them at once, and reports what each setting may be.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from rlinf_envs.errors import SettingError

P = ParamSpec("P")
T = TypeVar("T")

_WORDS: Mapping[object, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_COMMENT = " (# begins a comment in YAML: a value with # needs quotes)"
_SWITCH = " (yes, no, on and off are switches in YAML: put the text in quotes)"
_COLON = " (a colon and a space make a mapping in YAML: put the text in quotes)"
_QUOTES = " (put it in quotes)"
_SEVERAL = " (one is read: several files of data go into a folder)"


def typed(make: Callable[P, T]) -> Callable[P, T]:
    """Decorate a constructor or a function, which then raises SettingError for arguments of other types."""

    names = tuple(inspect.signature(make).parameters)

    @functools.wraps(make)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        wrong = misfits(make, {**dict(zip(names, args, strict=False)), **kwargs})
        if wrong:
            raise SettingError("; ".join(wrong))
        return make(*args, **kwargs)

    return checked


def misfits(make: Callable[..., Any], given: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Yield a sentence for each argument whose type is not the one of the parameter; ``prefix`` of its name.

    A hint that the parameter's own default does not fit is not held against anybody.
    """
    hints, parameters = _hints(make), inspect.signature(make).parameters
    wrong = []
    for name, value in given.items():
        if name not in hints or name not in parameters:
            continue
        default = parameters[name].default
        if default is not inspect.Parameter.empty and (value is default or not _fits(hints[name], default)):
            continue
        if not _fits(hints[name], value):
            wrong.append(f"{prefix}{name} must be {_words(hints[name])}, not {_given(value, hints[name])}")
    return wrong


@functools.cache
def _hints(make: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the types of the parameters of a function, or of a class's constructor.

    What it returns is left out: modules import that for type checkers alone.
    """
    written: Any = inspect.unwrap(make.__init__ if inspect.isclass(make) else make)
    annotated = types.SimpleNamespace(__annotations__={**written.__annotations__})
    annotated.__annotations__.pop("return", None)
    return typing.get_type_hints(annotated, globalns=getattr(written, "__globals__", {}))


def _fits(hint: Any, value: Any) -> bool:
    origin, members = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or hint is object or isinstance(hint, TypeVar):
        return True
    if hint is None or hint is type(None):
        return value is None
    if origin in (typing.Union, types.UnionType):
        return any(_fits(member, value) for member in members)
    if origin is typing.Literal:
        return any(value == member and type(value) is type(member) for member in members)
    if hint is bool:
        return isinstance(value, bool)
    if hint is int:
        return not isinstance(value, bool) and hasattr(value, "__index__")
    if hint is float:
        return not isinstance(value, bool) and hasattr(value, "__float__") and math.isfinite(value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        key, inner = members
        return isinstance(value, Mapping) and all(_fits(key, k) and _fits(inner, v) for k, v in value.items())
    if isinstance(origin, type) and issubclass(origin, Sequence):
        # YAML has lists alone, also where a tuple is wanted.
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            return False
        if origin is tuple and members[-1:] != (Ellipsis,):
            return len(value) == len(members) and all(map(_fits, members, value))
        return all(_fits(members[0], one) for one in value)
    if not isinstance(hint, type) or getattr(hint, "_is_protocol", False):
        return not isinstance(value, str | int | float | list | tuple | Mapping | None)
    return isinstance(value, hint)


def _words(hint: Any) -> str:
    """Describe the values that a hint allows."""
    origin, members = typing.get_origin(hint), typing.get_args(hint)
    if hint is None or hint is type(None):
        return "null"
    if hint in _WORDS:
        return _WORDS[hint]
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_words(member) for member in members))
    if origin is typing.Literal:
        return " or ".join(str(member) for member in members)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        inner = "" if members[1] in (Any, object) else f" whose values are each {_words(members[1])}"
        return f"a mapping{inner}"
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return "a list" if members[0] in (Any, object) else f"a list whose entries are each {_words(members[0])}"
    return str(getattr(hint, "__name__", hint))


def _given(value: Any, hint: Any) -> str:
    """Describe the value in words, with the way to write what was probably meant."""
    listed = [value for value in _literals(hint) if isinstance(value, str)]
    wants_text = bool(listed) or str in (hint, *typing.get_args(hint))
    if value is None:
        return f"null{_COMMENT if wants_text else ''}"
    if isinstance(value, bool):
        return f"the switch {str(value).lower()}{_SWITCH if wants_text else ''}"
    if isinstance(value, Mapping):
        return f"the mapping {dict(value)!r:.80}{_COLON if wants_text else ''}"
    if isinstance(value, str):
        near = difflib.get_close_matches(value, listed, n=1)
        if _is_mapping(hint) and value.isidentifier():
            return f"{value!r:.80}; write names with values: {{{value}: ...}}"
        return f"{value!r:.80}" + (f"; did you mean {near[0]!r}?" if near else "")
    wants_one = wants_text and isinstance(value, list)
    return f"{value!r:.80}{_QUOTES if wants_text and isinstance(value, int | float) else _SEVERAL * wants_one}"


def _is_mapping(hint: Any) -> bool:
    """Return whether a hint allows a mapping."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(map(_is_mapping, typing.get_args(hint)))
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _literals(hint: Any) -> tuple[Any, ...]:
    """List the values that a hint lists."""
    members = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return members
    return tuple(value for member in members for value in _literals(member))
