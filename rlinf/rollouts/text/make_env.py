"""A text environment from its id and its constructor's arguments; what a person wrote wrongly is a UserError."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Mapping
from inspect import Parameter
from typing import Any

import gymnasium

from rlinf.errors import UserError

_UNREGISTERED = (
    gymnasium.error.NameNotFound,
    gymnasium.error.NamespaceNotFound,
    gymnasium.error.VersionNotFound,
    gymnasium.error.DeprecatedEnv,
)
_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class TextEnvError(UserError):
    """An environment that can't be made as configured; the message names the key and what to change."""


def make_text_env(env_id: str, kwargs: Mapping[str, Any], *, num_envs: int, max_turns: int) -> Any:
    """The environment, unwrapped, with at most ``max_turns`` responses in a conversation.

    Raises:
        TextEnvError: the id is not registered, its constructor refuses the arguments (ValueError, a missing module or
            file, an argument that it does not know), or it is no text environment. Whatever else a constructor raises
            is a fault of its code and passes through.
    """
    _import_module(env_id)
    _require_arguments(env_id, kwargs)
    try:
        env: Any = gymnasium.make_vec(env_id, num_envs=num_envs, **kwargs).unwrapped
    except _UNREGISTERED as error:
        raise TextEnvError(f"env.id: {env_id} is not registered.{_meant(env_id)}") from error
    except (ValueError, ImportError, OSError, gymnasium.error.Error) as error:
        raise TextEnvError(f"env.kwargs: {env_id} could not be made: {error}") from error
    lacks = [name for name in ("num_tasks", "prompt", "resize") if not hasattr(env, name)]
    if lacks:
        raise TextEnvError(
            f"env.id: {env_id} is no text environment (it has no {', '.join(lacks)}), and policy.name: causal_lm needs "
            "one. For a simulator set policy.name: actor_critic; docs/environments.md says what a text environment has."
        )
    turns = getattr(env, "max_turns", 1)
    if turns > 1 and max_turns == 1:
        raise TextEnvError(
            f"env.max_turns is 1, and {env_id} answers up to {turns - 1} times: set env.max_turns: {turns}."
        )
    if turns > max_turns:
        env.max_turns = max_turns
    return env


def _import_module(env_id: str) -> None:
    """Imports the module of ``module:Id``, which registers the environment."""
    module = env_id.rpartition(":")[0]
    if not module:
        return
    try:
        importlib.import_module(module)
    except Exception as error:  # the module may be a user's, and raise what it likes
        reason = f"{type(error).__name__}: {error}"
        raise TextEnvError(f"env.id: the module {module} of {env_id} can't be imported: {reason}") from error


def _require_arguments(env_id: str, kwargs: Mapping[str, Any]) -> None:
    """Raises TextEnvError for arguments that the constructor does not know, or lacks."""
    spec = gymnasium.registry.get(env_id.rpartition(":")[2])
    entry = None if spec is None else spec.vector_entry_point
    if spec is None or entry is None:
        return
    make: Any = gymnasium.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
    parameters = inspect.signature(make).parameters
    names = [name for name, parameter in parameters.items() if parameter.kind in _NAMED and name != "num_envs"]
    given = {**spec.kwargs, **kwargs}
    if all(parameter.kind is not Parameter.VAR_KEYWORD for parameter in parameters.values()):
        for name in kwargs:
            if name not in names:
                close = difflib.get_close_matches(name, names, n=1)
                meant = f" Did you mean {close[0]}?" if close else ""
                raise TextEnvError(f"env.kwargs.{name}: {env_id} knows no {name}.{meant} It takes {', '.join(names)}.")
    for name in names:
        if parameters[name].default is Parameter.empty and name not in given:
            raise TextEnvError(f"env.kwargs.{name} is missing: {env_id} needs it.")


def _meant(env_id: str) -> str:
    """The registered ids that look most like ``env_id``."""
    module, colon, name = env_id.rpartition(":")
    close = difflib.get_close_matches(name, gymnasium.registry, n=2, cutoff=0.6)
    if close:
        return f" Did you mean {' or '.join(f'{module}{colon}{each}' for each in close)}?"
    return " If a package registers it, name the package: package:Id."
