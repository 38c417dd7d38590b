"""Policies, encoders and distributions of a user's own: `module:Class` in the configuration.

Their options are the keyword-only parameters of the class, with the types that it annotates.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlinf.base.errors import UserError
from rlinf.base.user_code import MODULE_PATH_ADVICE, imported, kind_of

if TYPE_CHECKING:
    from gymnasium import spaces

_KEPT = "own_policy.json"
"""A file of an exported policy: the class that reads it."""


class OwnClassError(UserError):
    """A class that cannot be made; the message names the key that named it."""


def is_own(name: str) -> bool:
    """Whether a name is that of a class of the user's, and none of ours."""
    return ":" in name


def own_class(key: str, name: str) -> type:
    """Import the class ``name`` = `module:Class`; raise an OwnClassError that begins with ``key`` if there is none."""
    try:
        result = imported(name)
    except ValueError as error:
        raise OwnClassError(f"{key}: {error}. {MODULE_PATH_ADVICE}") from error
    if not isinstance(result, type):
        raise OwnClassError(f"{key}: {name} is {kind_of(result)}, and must be a class")
    return result


def own_options(kind: type) -> dict[str, inspect.Parameter]:
    """Return the keyword-only parameters of a class, by name."""
    parameters = inspect.signature(kind).parameters.values()
    return {parameter.name: parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def make_own(key: str, name: str, options: Mapping[str, object], *arguments: Any) -> Any:
    """Make an instance of ``name`` by positional ``arguments`` and its options; an OwnClassError if it takes others."""
    kind = own_class(key, name)
    try:
        inspect.signature(kind).bind(*arguments, **options)
    except TypeError as error:
        raise OwnClassError(f"{key}: {name} cannot be made: {error}") from error
    return kind(*arguments, **options)


def keep_class(name: str, both: tuple[spaces.Space, spaces.Space], folder: str) -> None:
    """Write what :func:`load_own` reads next to the export of ``name``, with the spaces that the policy was made
    for."""
    from rlinf.models.actor_critic.export import save_spaces

    (Path(folder) / _KEPT).write_text(json.dumps({"class": name}))
    save_spaces(Path(folder), both)


def has_own_class(folder: Path) -> bool:
    """Whether an exported policy is of a class of the user's."""
    return (folder / _KEPT).exists()


def load_own(folder: Path) -> Any:
    """Load the exported policy by its class's ``from_pretrained``; an OwnClassError if that cannot be imported."""
    name = str(json.loads((folder / _KEPT).read_text(encoding="utf-8"))["class"])
    kind: Any = own_class(str(folder), name)
    return kind.from_pretrained(str(folder))
