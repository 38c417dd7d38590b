"""A text environment from its id and its constructor's arguments; what a person wrote wrongly is a UserError.

``env.id`` is a gymnasium id, ``module:Id`` of one that the module registers, or ``module:Class``. A vector environment
is taken as it is; a ``gymnasium.Env`` whose spaces are ``Text`` gets a copy for each conversation.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

import gymnasium

from rlinf.base.errors import UserError
from rlinf.base.packages import missing_package
from rlinf.base.user_code import importing
from rlinf.rollouts.text.envs.single_envs import SingleTextEnvs

_UNREGISTERED = (
    gymnasium.error.NameNotFound,
    gymnasium.error.NamespaceNotFound,
    gymnasium.error.VersionNotFound,
    gymnasium.error.DeprecatedEnv,
)
_NEEDS_TEXT = (
    "policy.name: causal_lm needs one. For a simulator set policy.name: actor_critic; docs/environments.md lists what "
    "a text environment has."
)
_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class TextEnvError(UserError):
    """An environment that can't be made as configured; the message names the key and what to change."""


@dataclass(frozen=True)
class ConversationLimits:
    """The limits that a run sets for its conversations; an ordinary ``gymnasium.Env`` does not have them."""

    max_turns: int = 1
    """Responses of the policy."""
    num_tasks: int = 1
    """Seeds of episodes, for environments that do not number their tasks."""
    first_seed: int = 0
    success_key: str = "success"


def make_text_env(env_id: str, kwargs: Mapping[str, Any], *, num_envs: int, conversations: ConversationLimits) -> Any:
    """Make the environment, unwrapped, with at most ``max_turns`` responses in a conversation.

    Raises:
        TextEnvError: the id is not registered, its constructor refuses the arguments (ValueError, a missing module
            or file, an argument that it does not have), or it is no text environment. Anything else that a
            constructor raises is a fault of its code and passes through.
    """
    made = _class_of(env_id)
    spec = gymnasium.registry.get(env_id.rpartition(":")[2])
    _require_arguments(env_id, made or _registered(spec), {} if spec is None else spec.kwargs, kwargs)
    try:
        if made is not None:
            make: Callable[[], gymnasium.Env] = functools.partial(made, **kwargs)
            is_vector = inspect.isclass(made) and issubclass(made, gymnasium.vector.VectorEnv)
            env: Any = made(num_envs=num_envs, **kwargs) if is_vector else make()
        elif spec is not None and spec.vector_entry_point is None:
            make = functools.partial(gymnasium.make, env_id, disable_env_checker=True, **kwargs)
            env = make()
        else:
            env = gymnasium.make_vec(env_id, num_envs=num_envs, **kwargs).unwrapped
    except _UNREGISTERED as error:
        raise TextEnvError(f"env.id: {env_id} is not registered.{_meant(env_id)}") from error
    except (ValueError, ImportError, OSError, gymnasium.error.Error) as error:
        raise TextEnvError(f"env.kwargs: {env_id} could not be made: {missing_package(error) or error}") from error
    if isinstance(env, gymnasium.Env):
        for kind, space in (("observations", env.observation_space), ("actions", env.action_space)):
            if not _has_text(space, within=kind == "observations"):
                raise TextEnvError(
                    f"env.id: {env_id} is no text environment: its {kind} are {space}, and {_NEEDS_TEXT}"
                )
        turns = int(getattr(env.unwrapped, "max_turns", 1))
        _require_turns(env_id, turns, conversations.max_turns)
        return SingleTextEnvs(
            env_id,
            make,
            num_envs=num_envs,
            num_tasks=conversations.num_tasks,
            first_seed=conversations.first_seed,
            max_turns=conversations.max_turns,
            success_key=conversations.success_key,
        )
    lacks = [name for name in ("num_tasks", "prompt", "resize") if not hasattr(env, name)]
    if lacks:
        raise TextEnvError(f"env.id: {env_id} is no text environment (it has no {', '.join(lacks)}), and {_NEEDS_TEXT}")
    turns = getattr(env, "max_turns", 1)
    _require_turns(env_id, turns, conversations.max_turns)
    if turns > conversations.max_turns:
        env.max_turns = conversations.max_turns
    return env


def draws_tasks_by_seed(env_id: str) -> bool:
    """Return whether the environment has the arguments `seed` and `split`: another seed gives it other tasks."""
    make = _class_of(env_id) or _registered(gymnasium.registry.get(env_id.rpartition(":")[2]))
    return make is not None and {"seed", "split"} <= inspect.signature(make).parameters.keys()


def _registered(spec: gymnasium.envs.registration.EnvSpec | None) -> Callable[..., Any] | None:
    """Return what gymnasium makes a registered environment with."""
    entry = None if spec is None else spec.vector_entry_point or spec.entry_point
    return gymnasium.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry


def _class_of(env_id: str) -> Callable[..., Any] | None:
    """Return the class that ``module:Class`` names, if nothing is registered by that id; the module is imported."""
    module_name, _, name = env_id.rpartition(":")
    if not module_name:
        return None
    try:
        with importing(env_id):
            module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # the module may be a user's, and raise what it likes
        reason = f"{type(error).__name__}: {error}"
        raise TextEnvError(f"env.id: the module {module_name} of {env_id} can't be imported: {reason}") from error
    result = None if name in gymnasium.registry else getattr(module, name, None)
    if result is not None and not callable(result):
        raise TextEnvError(f"env.id: {env_id} is no environment but {type(result).__name__}.")
    return result


def _require_turns(env_id: str, turns: int, max_turns: int) -> None:
    if turns > 1 and max_turns == 1:
        raise TextEnvError(
            f"env.max_turns is 1, and {env_id} answers up to {turns - 1} times: set env.max_turns: {turns}."
        )


def _has_text(space: gymnasium.Space[Any], *, within: bool) -> bool:
    """Whether a space is text, or ``within`` it text stands next to pictures."""
    parts: list[gymnasium.Space[Any]] = []
    if within and isinstance(space, gymnasium.spaces.Dict):
        parts = list(space.spaces.values())
    elif within and isinstance(space, gymnasium.spaces.Tuple | gymnasium.spaces.OneOf):
        parts = list(space.spaces)
    elif within and isinstance(space, gymnasium.spaces.Sequence):
        parts = [space.feature_space]
    return isinstance(space, gymnasium.spaces.Text) or any(_has_text(part, within=True) for part in parts)


def _require_arguments(
    env_id: str, make: Callable[..., Any] | None, registered: Mapping[str, Any], kwargs: Mapping[str, Any]
) -> None:
    """Raise TextEnvError for arguments that the constructor does not have, or lacks."""
    if make is None:
        return
    parameters = inspect.signature(make).parameters
    names = [name for name, parameter in parameters.items() if parameter.kind in _NAMED and name != "num_envs"]
    arguments = {**registered, **kwargs}
    if all(parameter.kind is not Parameter.VAR_KEYWORD for parameter in parameters.values()):
        for name in kwargs:
            if name not in names:
                close = difflib.get_close_matches(name, names, n=1)
                meant = f" Did you mean {close[0]}?" if close else ""
                takes = f"It takes {', '.join(names)}." if names else "It takes none."
                raise TextEnvError(f"env.kwargs.{name}: {env_id} has no argument {name}.{meant} {takes}")
    for name in names:
        if parameters[name].default is Parameter.empty and name not in arguments:
            raise TextEnvError(f"env.kwargs.{name} is missing: {env_id} needs it.")


def _meant(env_id: str) -> str:
    """Suggest the registered ids that are most similar to ``env_id``."""
    module, colon, name = env_id.rpartition(":")
    close = difflib.get_close_matches(name, gymnasium.registry, n=2, cutoff=0.6)
    if close:
        return f" Did you mean {' or '.join(f'{module}{colon}{each}' for each in close)}?"
    return " If a package registers it, name the package: package:Id."
