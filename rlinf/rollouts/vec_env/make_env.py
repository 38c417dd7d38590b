"""One environment from its options: any gymnasium id, wrappers by name, limits, frame stacking."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from rlinf.base.errors import UserError
from rlinf.base.user_code import (
    MODULE_PATH_ADVICE,
    Signature,
    did_you_mean,
    imported,
    importing,
    kind_of,
    names_a_file,
    nearest_name,
    other_module,
    own_parameters,
)
from rlinf.rollouts.deadline import DeadlineExceededError, can_interrupt, deadline
from rlinf.rollouts.env_errors import account_of
from rlinf.rollouts.vec_env.arrays import host_array, like_observations
from rlinf.rollouts.vec_env.mixture import MixtureEnv, task_options
from rlinf.rollouts.vec_env.registered_by import OF_GYM, registered_in_gym, registration_advice, version_advice
from rlinf.rollouts.wrappers import ActionMask, IgnoreTerminations, ResetStateIds
from rlinf.schema import EnvConfig
from rlinf.schema.derived import OTHER_WORDS

MakeBatch = Callable[..., VectorEnv]

Wrapper = str | Mapping[str, Mapping[str, Any]]
"""A name, or a name with arguments: ``{"RescaleAction": {"min_action": -1, "max_action": 1}}``."""

DRAWS = "draws_observations"
"""An environment with this attribute leaves pictures out of its observations while it is false."""


_OWN_STATISTICS = {
    gymnasium.wrappers.NormalizeObservation: "normalize_observations",
    gymnasium.wrappers.NormalizeReward: "normalize_rewards",
}
_SPACES = ("observation_space", "action_space")


class EnvNotFoundError(UserError):
    """An id, module or wrapper that does not exist; the message states which, and what would help."""


class EnvConstructionError(UserError):
    """An environment's constructor raised, or took too long."""


_NO_ENVIRONMENT = (
    "{what} is no gymnasium environment. Derive the class from gymnasium.Env (reset gives an observation and an info, "
    "step five values), or name a function of num_envs that returns a gymnasium.vector.VectorEnv. Environments of gym "
    "or PettingZoo need an adapter, such as those of shimmy or supersuit"
)


class EnvArgumentsError(UserError):
    """An environment or a wrapper does not take the arguments that it is given."""


def make_env(options: EnvConfig, *, render_mode: str | None = None) -> gymnasium.Env:
    """Build one environment, or one that plays all of `env.tasks`.

    The order is: the env, its start states, its wrappers, no terminations, frame stack, mask of actions."""
    if options.tasks:
        return MixtureEnv(
            [
                functools.partial(make_env, task_options(options, number), render_mode=render_mode)
                for number in range(len(options.tasks))
            ]
        )
    kwargs = dict(options.kwargs)
    if render_mode is not None:
        kwargs["render_mode"] = render_mode
    _import_module_of(options.id)
    batch = batch_function(options.id)
    with _construction_errors(options):
        if batch is not None:
            env: gymnasium.Env = SingleOfBatch(batch, kwargs)
            if options.max_episode_steps is not None:
                env = gymnasium.wrappers.TimeLimit(env, options.max_episode_steps)
        else:
            # A class of a single environment, or a function that makes one, need not be registered.
            known: str | EnvSpec = options.id
            own = _own(options.id)
            if isinstance(own, gymnasium.Env):
                kind = f"{type(own).__module__}:{type(own).__qualname__}"
                raise EnvNotFoundError(
                    f"env.id {options.id!r} is a single object, and every worker makes its own: write {kind}"
                )
            if callable(own):
                entry = options.id if _is_single(own) else functools.partial(_made_by, own, options.id)
                known = EnvSpec(options.id.rpartition(":")[2], entry_point=entry)
            env = gymnasium.make(known, max_episode_steps=options.max_episode_steps, disable_env_checker=True, **kwargs)
    _make_spaces(env, options.id)
    if options.reset_state_ids:
        env = ResetStateIds(env, options.reset_state_ids)
    for wrapper in options.wrappers:
        env = _wrapped(env, wrapper)
    if options.ignore_terminations:
        env = IgnoreTerminations(env)
    if options.frame_stack > 1:
        env = gymnasium.wrappers.FrameStackObservation(env, options.frame_stack, padding_type=options.frame_padding)
    if options.action_mask is not None:
        try:
            env = ActionMask(env, options.action_mask)
        except TypeError as error:
            raise EnvArgumentsError(str(error)) from error
    return env


@contextmanager
def _construction_errors(options: EnvConfig) -> Iterator[None]:
    """Put what a constructor raises in the block into words: what of the configuration to change."""
    try:
        yield
    except (gymnasium.error.NameNotFound, gymnasium.error.NamespaceNotFound, gymnasium.error.VersionNotFound) as error:
        if advice := version_advice(options.id):
            raise EnvNotFoundError(f"env.id {options.id!r} is not registered: {advice}") from error
        if registered_in_gym(options.id):
            raise EnvNotFoundError(f"env.id {options.id!r} is registered with gym: {OF_GYM}") from error
        raise EnvNotFoundError(
            f"env.id {options.id!r} is not registered{_meant(options.id)}: {error} If a package registers it, name the "
            "package: 'package:Id'; simulators of this project are 'rlinf_envs:rlinf/...'"
        ) from error
    except ModuleNotFoundError as error:
        raise _not_installed(options.id, error) from error
    except TypeError as error:
        # Gymnasium reports every TypeError of a constructor so; only a call that did not fit is the configuration's.
        if "argument" not in str(error):
            raise _not_constructed(options, error) from error
        words = _refused_argument(options.id, str(error))
        raise EnvArgumentsError(f"env.kwargs do not fit the constructor of env.id {options.id!r}: {words}") from error
    except (UserError, DeadlineExceededError):
        raise
    except (Exception, SystemExit) as error:
        raise _not_constructed(options, error) from error


def make_in_time(options: EnvConfig, make: Callable[[EnvConfig], gymnasium.Env] = make_env) -> gymnasium.Env:
    """Make an environment within ``start_timeout_s``, where a time limit works.

    Raises:
        EnvConstructionError: its constructor raised, or did not return in time; the message names the line.
    """
    limit = options.start_timeout_s if can_interrupt() else 0.0
    try:
        with deadline(limit):
            return make(options)
    except DeadlineExceededError as error:
        words = f"no environment within {limit:g} s (cluster.start_timeout_s)"
        raise EnvConstructionError(f"env.id {options.id!r}: {account_of(error, words)}") from error


def _make_spaces(env: gymnasium.Env, env_id: str) -> None:
    """Reset an environment that has no spaces before. Raise EnvConstructionError if it has none then."""
    for name in _SPACES:
        space = getattr(env.unwrapped, name, None)
        if space is not None and not isinstance(space, gymnasium.Space):
            kind = f"{type(space).__module__}.{type(space).__qualname__}"
            raise EnvConstructionError(
                f"env.id {env_id!r}: its {name} is a {kind}, and must be one of gymnasium.spaces"
            )
    if not _missing_spaces(env):
        return
    try:
        env.unwrapped.reset(seed=0)
    except Exception as error:
        lost = " and ".join(_missing_spaces(env))
        message = f"env.id {env_id!r} has no {lost}, and reset raised: {account_of(error)}"
        raise EnvConstructionError(message) from error
    if lost := " and ".join(_missing_spaces(env)):
        raise EnvConstructionError(
            f"env.id {env_id!r} has no {lost}, not even after a reset. Set it in the constructor, such as "
            "self.action_space = gymnasium.spaces.Discrete(2)"
        )


def _missing_spaces(env: gymnasium.Env) -> list[str]:
    return [name for name in _SPACES if getattr(env.unwrapped, name, None) is None]


def _not_constructed(options: EnvConfig, error: BaseException) -> EnvConstructionError:
    what = version_advice(options.id) or account_of(error)
    return EnvConstructionError(f"env.id {options.id!r} could not be constructed: {what}")


def _wrapped(env: gymnasium.Env, wrapper: Wrapper) -> gymnasium.Env:
    name, arguments = (wrapper, {}) if isinstance(wrapper, str) else next(iter(wrapper.items()))
    make = wrapper_class(name)
    if key := _OWN_STATISTICS.get(make):
        raise EnvArgumentsError(
            f"env.wrappers: {name} has statistics of its own in each environment, which neither evaluations nor "
            f"checkpoints have. Write env.{key}: true instead"
        )
    if problem := Signature(("the environment",), tuple(arguments), makes=True).misfit(make):
        example = f"{{{name}: {{ARGUMENT: VALUE}}}}"
        raise EnvArgumentsError(f"env.wrappers: {name} {problem}. Arguments are given so: {example}")
    if make.__module__.startswith("gymnasium."):  # its wrappers take tuples, which YAML has not
        arguments = {key: tuple(value) if isinstance(value, list) else value for key, value in arguments.items()}
    try:
        wrapped = make(env, **arguments)
    except (UserError, DeadlineExceededError):
        raise
    except (Exception, SystemExit) as error:  # whatever a constructor raises
        films = ". Films of evaluations: evaluation.video_every" if make is gymnasium.wrappers.RecordVideo else ""
        account = f"{account_of(error).rstrip('.')}{films}"
        raise EnvConstructionError(f"env.wrappers: {name} could not be constructed: {account}") from error
    if not isinstance(wrapped, gymnasium.Env):
        raise EnvConstructionError(f"env.wrappers: {name} gives {kind_of(wrapped)}, and must return an environment")
    return wrapped


def wrapper_class(name: str) -> Any:
    """Import a wrapper of gymnasium by its name (`FlattenObservation`), or any by `module:Class` or `module.Class`."""
    module, dot, last = name.rpartition(".")
    path = name if ":" in name else f"{module if dot else 'gymnasium.wrappers'}:{last}"
    try:
        return imported(path)
    except ValueError as error:
        raise EnvNotFoundError(
            f"env.wrappers: {name!r} is neither a wrapper in gymnasium.wrappers nor a 'module:Class': {error}"
        ) from error


def native_entry_point(env_id: str) -> str | None:
    """Find the vector implementation of the id ("module:Class"): the one that it is registered with, or itself.

    None if there is none. Of a `functools.partial` it is the function that is called in the end.
    """
    _import_module_of(env_id)
    if batch_function(env_id) is not None:
        return env_id
    spec = gymnasium.registry.get(env_id.rpartition(":")[2])
    entry: Any = None if spec is None else spec.vector_entry_point
    while isinstance(entry, functools.partial):
        entry = entry.func
    if entry is None or isinstance(entry, str):
        return entry
    named = entry if hasattr(entry, "__qualname__") else type(entry)
    return f"{named.__module__}:{named.__qualname__}"


def _import_module_of(env_id: str) -> None:
    """Import the module of ``module:Id``, which registers it."""
    module = env_id.rpartition(":")[0]
    if not module:
        return
    if wrong := names_a_file(env_id):
        raise EnvNotFoundError(f"env.id {env_id!r}: {wrong}")
    try:
        with importing(env_id):
            importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise _not_installed(env_id, error) from error
    except (UserError, DeadlineExceededError):
        raise
    except (Exception, SystemExit) as error:  # whatever a module of the user's own raises
        raise EnvConstructionError(f"env.id {env_id!r}: the import of {module} raised {account_of(error)}") from error


def _not_installed(env_id: str, error: ModuleNotFoundError) -> EnvNotFoundError:
    meant = nearest_name(error) or f". {MODULE_PATH_ADVICE}"
    return EnvNotFoundError(f"env.id {env_id!r} needs the module {error.name!r}, which is not installed{meant}")


def _meant(env_id: str) -> str:
    """Find the registered id, or the class of the module, that is most similar to ``env_id``."""
    module, colon, name = env_id.rpartition(":")
    if not colon and Path(f"{env_id.partition('.')[0]}.py").exists():
        module, _, name = env_id.partition(".")  # a class as Python writes it, or a module alone
    if not module:
        return registration_advice(name) or did_you_mean(name, gymnasium.registry)
    own = importlib.import_module(module)
    classes = [name for name, member in vars(own).items() if _is_single(member)]
    known = [*classes, *gymnasium.registry] if colon else classes
    return other_module(own) or did_you_mean(name or next(iter(classes), ""), known, before=f"{module}:")


def _refused_argument(env_id: str, error: str) -> str:
    """Python's words of an argument that a constructor does not take, or ours with the nearest that it takes."""
    refused = re.search(r"unexpected keyword argument '(\w+)'", error)
    spec = gymnasium.registry.get(env_id.rpartition(":")[2])
    made = spec.entry_point or spec.vector_entry_point if spec is not None else _own(env_id)
    if refused is None or made is None:
        return error
    parameters = own_parameters(imported(made) if isinstance(made, str) else made, behind=0)
    known = [one.name for one in parameters if one.name != "num_envs"]
    return f"it takes no {refused[1]}{did_you_mean(refused[1], known)}; it takes {', '.join(known) or 'none'}"


def make_native_env(options: EnvConfig, num_envs: int) -> Any:
    """Build the environment's own vector implementation. What only single environments can have is a ValueError."""
    if native_entry_point(options.id) is None:
        raise EnvNotFoundError(f"env.vectorization native: {options.id!r} has no vector env of its own; use 'auto'")
    if not takes_env_as_it_is(options):
        raise ValueError(
            "env.vectorization native takes the environment as it is: tasks, wrappers, reset_state_ids, "
            "ignore_terminations, frame_stack, action_mask and num_action_chunks need 'sync' or 'async'"
        )
    limit: dict[str, Any] = (
        {} if options.max_episode_steps is None else {"max_episode_steps": options.max_episode_steps}
    )
    arguments: dict[str, Any] = {**limit, **options.kwargs}
    batch = batch_function(options.id)
    with _construction_errors(options):
        if batch is not None:
            made = batch(num_envs=num_envs, **arguments)
            _require_vector_env(made, batch)
            return made
        return gymnasium.make_vec(options.id, num_envs, vectorization_mode="vector_entry_point", **arguments)


def may_skip_pictures(env: gymnasium.Env, options: EnvConfig) -> bool:
    """Return whether observations may lack their pictures if they are not read.

    A wrapper may keep observations, of which none may be missing then."""
    own = OTHER_WORDS.values()  # of evaluation.words: they change the instruction alone
    wrapped = any(wrapper not in own for wrapper in options.wrappers)
    return options.frame_stack == 1 and not wrapped and env.has_wrapper_attr(DRAWS)


def takes_env_as_it_is(options: EnvConfig) -> bool:
    """Whether nothing is wrapped around the environment."""
    wrapped = options.tasks or options.wrappers or options.reset_state_ids or options.ignore_terminations
    wrapped = wrapped or options.action_mask is not None
    return not (wrapped or options.frame_stack > 1 or options.num_action_chunks > 1)


def batch_function(env_id: str) -> MakeBatch | None:
    """Return the class or function of ``num_envs`` that `module:name` names; None if the id names no such thing."""
    entry = _own(env_id)
    if not callable(entry) or _is_single(entry):
        return None
    batches = "num_envs" in {one.name for one in own_parameters(entry, behind=0)}
    if isinstance(entry, type) and not issubclass(entry, VectorEnv) and not batches:
        raise EnvNotFoundError(_NO_ENVIRONMENT.format(what=f"env.id: {env_id}"))
    return entry if batches or isinstance(entry, type) else None


def _made_by(function: Callable[..., Any], env_id: str, **kwargs: Any) -> gymnasium.Env:
    """Call a function that makes a single environment; raise EnvNotFoundError if it gives something else."""
    made = function(**kwargs)
    if isinstance(made, VectorEnv):
        raise EnvNotFoundError(f"env.id: {env_id} gives a vector environment, and needs a parameter num_envs for that")
    if inspect.isfunction(made):
        raise EnvNotFoundError(f"env.id: {env_id} gives a function: let it return the environment that this one makes")
    if not isinstance(made, gymnasium.Env):
        raise EnvNotFoundError(_NO_ENVIRONMENT.format(what=f"env.id: {env_id} gives {kind_of(made)}, which"))
    return made


def _require_vector_env(made: object, make: MakeBatch) -> None:
    """Raise EnvNotFoundError for what a function returned instead of a vector environment."""
    if not hasattr(made, "single_observation_space") or not hasattr(made, "single_action_space"):
        name = getattr(make, "__qualname__", repr(make))
        if isinstance(made, gymnasium.Env):
            raise EnvNotFoundError(
                f"env.id: {name} gives one environment, and must give a gymnasium.vector.VectorEnv of num_envs. Take "
                "num_envs out of its parameters, and it is called for each environment"
            )
        raise EnvNotFoundError(_NO_ENVIRONMENT.format(what=f"env.id: {name} gives {kind_of(made)}, which"))


def _own(env_id: str) -> Any:
    """Return the object that `module:name` names; None if that is a registered environment, or nothing."""
    module, colon, name = env_id.rpartition(":")
    if not colon or name in gymnasium.registry or not name.isidentifier():
        return None
    return getattr(importlib.import_module(module), name, None)


def _is_single(entry: object) -> bool:
    return isinstance(entry, type) and issubclass(entry, gymnasium.Env)


class SingleOfBatch(gymnasium.Env):
    """A batch environment of one sub-environment as a plain environment, which is reset by its caller."""

    def __init__(self, make: MakeBatch, kwargs: Mapping[str, Any]) -> None:
        self._env = make(num_envs=1, **kwargs)
        _require_vector_env(self._env, make)
        self.observation_space = self._env.single_observation_space
        self.action_space = self._env.single_action_space
        self.metadata = dict(self._env.metadata)
        self._seen: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._seen, _ = self._env.reset(seed=seed, options=options)
        return _first(self._seen), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        actions = like_observations(np.asarray(action)[None], self._seen)
        self._seen, reward, terminated, truncated, info = self._env.step(actions)
        ends = bool(host_array(terminated)[0]), bool(host_array(truncated)[0])
        final = info.get("final_obs", info.get("final_observation")) if any(ends) else None
        last = info.get("final_info", info) if any(ends) else info
        facts = {name: _first(value) for name, value in last.items() if np.ndim(value) and not name.startswith("final")}
        return _first(self._seen if final is None else final), float(host_array(reward)[0]), *ends, facts

    def close(self) -> None:
        self._env.close()


def _first(values: Any) -> Any:
    """Copy the values of the one sub-environment: the batch may write over it."""
    if isinstance(values, Mapping):
        return {name: _first(part) for name, part in values.items()}
    if isinstance(values, tuple):
        return tuple(_first(part) for part in values)
    row = host_array(values)[0]
    return row.copy() if isinstance(row, np.ndarray) else row
