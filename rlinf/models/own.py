"""Policies, encoders and distributions of a user's own: `module:Class` in the configuration.

Their options are the keyword-only parameters of the class, with the types that it annotates.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from rlinf.errors import UserError


class OwnClassError(UserError):
    """A class that cannot be made; the message names the key that named it."""


def is_own(name: str) -> bool:
    """Whether a name is that of a class of somebody's own, and none of ours."""
    return ":" in name


def own_class(key: str, name: str) -> type:
    """The class that ``name`` = `module:Class` says; an OwnClassError that begins with ``key`` if there is none."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # the module is a user's, and raises what it likes
        raise OwnClassError(
            f"{key}: {name} cannot be imported: {type(error).__name__}: {error}. The module must be on PYTHONPATH, or "
            "lie where the run is started"
        ) from error
    if not isinstance(found, type):
        raise OwnClassError(f"{key}: {name} is no class")
    return found


def own_options(kind: type) -> dict[str, inspect.Parameter]:
    """The keyword-only parameters of a class, by name."""
    parameters = inspect.signature(kind).parameters.values()
    return {parameter.name: parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def make_own(key: str, name: str, options: Mapping[str, object], *arguments: Any) -> Any:
    """An instance of ``name``, by positional ``arguments`` and its options; an OwnClassError where it takes others."""
    kind = own_class(key, name)
    try:
        inspect.signature(kind).bind(*arguments, **options)
    except TypeError as error:
        raise OwnClassError(f"{key}: {name} cannot be made: {error}") from error
    return kind(*arguments, **options)
