"""Checks an environment, in gymnasium's words: its own checker, and what the checker leaves out."""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces, wrappers
from gymnasium.utils.env_checker import check_env, data_equivalence

from rlinf.base.user_code import kind_of
from rlinf.data.spaces import copied, exactly, observation_entries
from rlinf.rollouts.deadline import DeadlineExceededError, can_interrupt, deadline
from rlinf.rollouts.env_errors import account_of
from rlinf.rollouts.vec_env.env_contract import (
    SUCCESS_KEYS,
    EnvContractError,
    first_observation,
    flag,
    number,
    parts,
    success_of,
    unreported_success,
)
from rlinf.rollouts.vec_env.vec_env import LARGEST, close_quietly
from rlinf.rollouts.wrappers import random_action

_SEEDS = (123, 124)
"""Of the episodes with random actions."""
_STEPS = 60
"""Of each."""
_SPACES = ("observation_space", "action_space")
_MASK = "action_mask"
"""The key of observations and infos by which environments name the actions that are possible now."""
_AT_ONCE = "truncates after 1 step"
_NOT_FINITE, _UNEQUAL = "not finite", "are not equivalent for the same seed"
_ABOUT_GENERATOR = re.compile(r"_np_random|`\.np_random`|random number generator to have|random generates")
"""The checker's messages on environments that do not draw from gymnasium's generator."""


@dataclass(frozen=True)
class Remark:
    """``fatal``: an assertion that failed; otherwise a warning."""

    message: str
    fatal: bool


@dataclass
class _Infos:
    """The infos of random episodes."""

    keys: set[str] = field(default_factory=set)
    of_whole_episodes: bool = False
    """Whether one of the episodes ended."""


# What `gymnasium.make` puts around every environment. Wrappers of the environment's own stay: it is judged with them.
_ADDED_BY_MAKE = (wrappers.PassiveEnvChecker, wrappers.OrderEnforcing, wrappers.TimeLimit)
_ABOUT_WRAPPERS = "is different from the unwrapped version"


def remarks_on(env: gymnasium.Env, success_key: str = "success", step_timeout_s: float = 0.0) -> list[Remark]:
    """All remarks of the checks; closes ``env``.

    Args:
        success_key: where its info is read (`env.success_key`).
        step_timeout_s: how long a reset or a step may take (`env.step_timeout_s`); 0 sets no limit.
    """
    while isinstance(env, _ADDED_BY_MAKE):
        env = env.env
    lacks = [name for name in _SPACES if not isinstance(getattr(env, name, None), spaces.Space)]
    if lacks:
        close_quietly(env)
        return [Remark(f"it has no {' and no '.join(lacks)}", True)]
    read_otherwise: dict[str, str] = {}
    for name in ("reset", "step"):
        setattr(env, name, _as_read(env, name, step_timeout_s if can_interrupt() else 0.0, read_otherwise))
    remarks: list[Remark] = []
    raised: list[Remark] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(env, skip_render_check=True, skip_close_check=True)
        except AssertionError as error:
            # The checker takes no flags of numpy, which a comparison of numpy's numbers gives.
            if _AT_ONCE not in str(error) or _truncates_at_once(env):
                remarks.append(Remark(str(error) or type(error).__name__, True))
        except _SlowError as error:
            close_quietly(env)
            return [Remark(f"a call of gymnasium's checker: {error}", True)]
        except (Exception, SystemExit) as error:
            raised.append(Remark(f"a call of gymnasium's checker raised {account_of(error)}", True))
    # The checker makes a few resets and steps, and stops at the first problem; training meets the rest.
    infos = _Infos()
    walked = _walk(env, infos, success_key)
    if any(_NOT_FINITE in remark.message for remark in walked):
        # NaN differs from itself: two equal episodes seem to differ.
        remarks = [remark for remark in remarks if _UNEQUAL not in remark.message]
    if not walked:
        # Equal episodes came of equal seeds: a generator of the environment's own is as good.
        remarks = [remark for remark in remarks if not _ABOUT_GENERATOR.search(remark.message)]
    if env.has_wrapper_attr("random_legal_action"):
        raised = []  # gymnasium's checker takes illegal actions too
    remarks += walked or raised or _masks(env)
    remarks += [Remark(words, False) for words in sorted(read_otherwise.values())]
    unreported = unreported_success(success_key, infos.keys)
    if unreported and (infos.of_whole_episodes or not infos.keys.isdisjoint(SUCCESS_KEYS)):
        remarks.append(Remark(unreported, False))
    close_quietly(env)
    warned = [str(warning.message) for warning in caught]
    remarks += [Remark(text, False) for text in warned if "WARN:" in text and _ABOUT_WRAPPERS not in text]
    # A Dict has the same remark for each of its parts.
    return list(dict.fromkeys(remarks))


def _truncates_at_once(env: gymnasium.Env) -> bool:
    env.reset(seed=_SEEDS[0])
    return flag(env.step(random_action(env))[3], "truncated")


def _masks(env: gymnasium.Env) -> list[Remark]:
    """Remark if an environment reports which actions are legal, and nothing reads it (`env.action_mask`)."""
    if env.has_wrapper_attr("random_legal_action"):
        return []
    leaves = env.observation_space.spaces if isinstance(env.observation_space, spaces.Dict) else {}
    named = _MASK in leaves or _MASK in env.reset(seed=_SEEDS[0])[1]
    if named or env.has_wrapper_attr("action_masks") or env.has_wrapper_attr(_MASK):
        return [Remark("it masks invalid actions", False)]
    return []


def _walk(env: gymnasium.Env, infos: _Infos, success_key: str) -> list[Remark]:
    """Random episodes, twice from the same seeds: observations in their space, numbers finite, and all of it equal.

    ``infos`` is given the keys of all infos."""
    remarks: list[Remark] = []
    trajectories = []
    for _ in range(2):
        env.action_space.seed(_SEEDS[0])
        trajectory: list[Any] = []
        try:
            _random_trajectory(env, trajectory, remarks, infos, success_key)
        except _RaisedError as error:
            return [*remarks, Remark(str(error), True)]
        trajectories.append(trajectory)
        if remarks:
            return remarks
    if env.spec is not None and env.spec.nondeterministic:
        return remarks
    for index, (first, second) in enumerate(zip(*trajectories, strict=False)):
        if not data_equivalence(first, second, exact=True):
            close = data_equivalence(first, second)
            how = "are not equivalent" if not close else "are not equal although similar"
            remarks.append(
                Remark(f"two trajectories {how} for the same seed and the same actions at step {index}", not close)
            )
            break
    return remarks


def _random_trajectory(
    env: gymnasium.Env, trajectory: list[Any], remarks: list[Remark], infos: _Infos, success_key: str
) -> None:
    """Record (observation, reward, terminated, truncated) of every step, and remarks; stop at the first of these."""
    for seed in _SEEDS:
        with _naming(f"reset({seed=})"):
            observation = first_observation(env.reset(seed=seed))
        trajectory.append((observation, 0.0, False, False))
        _check_observation(env, observation, f"reset({seed=})", remarks)
        for step in range(1, _STEPS + 1):
            if remarks:
                return
            when = f"step {step} after reset({seed=})"
            with _naming(when):
                observation, reward, terminated, truncated, info = parts(env.step(random_action(env)), "step")
                ends = flag(terminated, "terminated"), flag(truncated, "truncated")
                success_of(info, success_key)
                infos.keys.update(map(str, info or ()))
            try:
                earned = number(reward)
            except EnvContractError:
                earned = None
            trajectory.append((observation, earned, *ends))
            _check_observation(env, observation, when, remarks)
            if earned is None:
                remarks.append(Remark(f"the reward of {when} is {kind_of(reward)}, and must be a number", True))
            elif not abs(earned) <= LARGEST:
                remarks.append(Remark(f"the reward of {when} is {earned}: {_NOT_FINITE}", True))
            if any(ends):
                infos.of_whole_episodes = True
                break


class _SlowError(Exception):
    """A call of the environment did not return in time; the message names the call."""


def _as_read(env: gymnasium.Env, name: str, seconds: float, otherwise: dict[str, str]) -> Callable[..., Any]:
    """Return ``env.reset`` or ``env.step`` with a time limit, its own signature, and results as training reads them.

    Observations have the dtype of their space and are copies, and numbers are within its bounds; an info of None is
    empty. ``otherwise`` is given which observations were not so, first examples by name.
    """
    call = getattr(env, name)
    parameters = inspect.signature(call).parameters.values()
    # The wrappers of `gymnasium.make` always pass both of these on.
    required = [one.name for one in parameters if one.name in ("seed", "options") and one.default is one.empty]

    @functools.wraps(call)
    def method(*args: Any, **named: Any) -> Any:
        if named.get("options") == {}:  # as the checker calls it; training passes None
            named["options"] = None
        try:
            with deadline(seconds):
                returned = call(*args, **{**dict.fromkeys(required), **named})
        except DeadlineExceededError as error:
            words = f"{name} did not return within {seconds:g} s (env.step_timeout_s)"
            raise _SlowError(account_of(error, words)) from error
        if not isinstance(returned, tuple) or len(returned) < 2:
            return returned
        observation, *others, info = returned
        observation = _cast(env.observation_space, observation, "observation", otherwise)
        return observation, *others, {} if info is None else info

    return method


def _cast(space: spaces.Space, value: Any, name: str, otherwise: dict[str, str]) -> Any:
    """Return a copy of ``value`` in the dtype and bounds of its space; as it is where training would refuse it."""
    if isinstance(space, spaces.Dict) and isinstance(value, Mapping):
        return {
            key: _cast(space[key], part, f"{name}.{key}", otherwise) if key in space.spaces else part
            for key, part in value.items()
        }
    if isinstance(space, spaces.Tuple) and isinstance(value, tuple) and len(value) == len(space):
        return tuple(_cast(part, value[i], f"{name}.{i}", otherwise) for i, part in enumerate(space.spaces))
    if not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return copied(value)
    try:
        cast = exactly(value, np.dtype(space.dtype), name).copy()
    except (ValueError, RuntimeError):
        return copied(value)
    if cast.shape != space.shape:
        return copied(value)
    if isinstance(space, spaces.Box):
        if getattr(value, "dtype", None) != space.dtype:
            dtype = value.dtype if isinstance(value, np.ndarray) else kind_of(value)
            otherwise.setdefault(f"{name} dtype", f"{name} is {dtype}, and is read as {space.dtype}")
            if space.dtype == np.float16 and not np.array_equal(cast, value):
                otherwise[f"{name} dtype"] = f"{name} is {dtype}, and is rounded to {space.dtype}"
        cast = _bounded(space, cast, name, otherwise)
    return cast[()] if isinstance(space, spaces.Discrete) else cast


def _bounded(space: spaces.Box, numbers: np.ndarray, name: str, otherwise: dict[str, str]) -> np.ndarray:
    """Return ``numbers`` within the bounds of their space, which no policy reads but for pixels and tokens."""
    beyond = (numbers < space.low) | (numbers > space.high)
    read = numbers.dtype.kind not in "fi" or name.endswith("tokens")
    if read or not beyond.any() or not (np.abs(numbers) <= LARGEST).all():
        return numbers
    otherwise.setdefault(f"{name} bounds", f"{name}: {_outside_box(space, numbers)}")
    return np.clip(numbers, space.low, space.high)


class _RaisedError(Exception):
    """A call of the environment raised; the message states which, what, and where in its own code."""


@contextmanager
def _naming(call: str) -> Iterator[None]:
    try:
        yield
    except _SlowError as error:
        raise _RaisedError(f"{call}: {error}") from error
    except (Exception, SystemExit) as error:
        raise _RaisedError(f"{call} with random actions raised {account_of(error)}") from error


def _check_observation(env: gymnasium.Env, observation: Any, when: str, remarks: list[Remark]) -> None:
    if observation not in env.observation_space:
        where = outside(env.observation_space, observation)
        remarks.append(Remark(f"the observation of {when} is not within the observation space: {where}", True))
        return
    for name, leaf in observation_entries(observation):
        if getattr(leaf, "dtype", np.dtype(int)).kind == "f" and not (np.abs(leaf) <= LARGEST).all():
            remarks.append(Remark(f"the {name} of {when} has {np.abs(leaf).max()}: {_NOT_FINITE} in float32", True))


def outside(space: spaces.Space, value: Any, name: str = "observation") -> str:
    """Return the exact reason why ``value`` is outside ``space``."""
    if isinstance(space, spaces.Dict) and isinstance(value, dict):
        missing, more = set(space.spaces) - set(value), set(value) - set(space.spaces)
        if missing or more:
            return f"{name} lacks {sorted(missing)} and has {sorted(more)}, which the space lacks"
        parts = [outside(part, value[key], f"{name}[{key!r}]") for key, part in space.spaces.items()]
        return "; ".join(part for part in parts if part)
    if value in space:
        return ""
    if isinstance(space, spaces.Box):
        return f"{name}: {_outside_box(space, value)}"
    return f"{name}: {value!r} is no member of {space}"


def _outside_box(space: spaces.Box, value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return f"a {type(value).__name__}, where the space wants an array of {space.dtype} {space.shape}"
    if value.shape != space.shape:
        return f"shape {value.shape}, the space has {space.shape}"
    if not np.can_cast(value.dtype, space.dtype):
        return f"dtype {value.dtype}, the space has {space.dtype}"
    if not np.isfinite(value).all() and value.dtype.kind == "f":
        return f"{int((~np.isfinite(value)).sum())} of {value.size} numbers are not finite"
    bad = np.argwhere((value < space.low) | (value > space.high))
    at = tuple(bad[0].tolist())
    return (
        f"{len(bad)} of {value.size} numbers are out of bounds, for example {value[at]} at {at}, "
        f"where the space has {space.low[at]} to {space.high[at]}"
    )
