"""Demonstrators: an environment's own ``expert_action()``, or a function by name, and the steps that one makes.

A function by name (``module:name``) is called with the environment at the start of each episode, and returns
what maps observations to actions. So it may read anything in the environment, and keep any state for one
episode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlinf.base.errors import UserError
from rlinf.base.user_code import Signature, imported
from rlinf.data.spaces import copied
from rlinf.rollouts.deadline import DeadlineExceededError
from rlinf.rollouts.env_errors import account_of
from rlinf.rollouts.simulator.episodes import MAX_DECISIONS
from rlinf.rollouts.simulator.failures import EnvFailureError
from rlinf.rollouts.vec_env.env_contract import flag, number, parts, success_of
from rlinf.rollouts.vec_env.make_env import DRAWS, may_skip_pictures
from rlinf.schema import EnvConfig

Act = Callable[[Any], Any]
"""From an observation of the environment to its action."""
MakeExpert = Callable[[gymnasium.Env], Act]
"""Called at the start of each episode."""
MakeGate = Callable[[gymnasium.Env], Callable[[Any], bool]]
"""Likewise; from an observation to whether the demonstrator makes the next decision, instead of a policy."""


class NoDemonstrationsError(UserError, ValueError):
    """An environment that cannot demonstrate, or whose demonstrator never succeeds."""


@dataclass(frozen=True)
class ExpertStep:
    """One step of a demonstrator."""

    observation: Any
    """Before the step."""
    action: np.ndarray
    reward: float
    terminated: bool
    truncated: bool
    success: bool
    """Whether the environment reports success after the step."""
    info_keys: frozenset[str]
    demonstrated: bool
    """False for the random actions of a perturbation, and for those of a policy."""


@dataclass(frozen=True)
class ActionRequest:
    """A policy is to decide at this observation: the caller that plays the steps sends its actions [K, ...]."""

    observation: Any


def expert_of(name: str | None, env: gymnasium.Env, env_id: str) -> MakeExpert:
    """Return the demonstrator ``module:name``, or without a name the environment's own.

    Raises NoDemonstrationsError if there is none.
    """
    if name is not None:
        made: MakeExpert = _found(name, "demonstrator", "sft.expert")
        return made
    if not env.has_wrapper_attr("expert_action"):
        raise NoDemonstrationsError(
            f"{env_id} has no demonstrator (a method expert_action()), which a warm start imitates: name one "
            "(sft.expert: module:name) or a dataset (sft.dataset), or set sft.steps: 0"
        )
    if env.action_space != env.unwrapped.action_space:
        raise NoDemonstrationsError(
            f"{env_id}: a wrapper changes the actions, and the demonstrator speaks of those without it: "
            "take the wrapper out, or set sft.steps: 0"
        )
    return lambda env: _own(env.get_wrapper_attr("expert_action"))


def gate_of(name: str) -> MakeGate:
    """Return the gate ``module:name`` (`sft.gate`). Raises NoDemonstrationsError if there is none."""
    made: MakeGate = _found(name, "gate", "sft.gate")
    return made


def _own(expert_action: Callable[[], Any]) -> Act:
    return lambda _observation: expert_action()


def _found(name: str, what: str, key: str) -> Any:
    """Import ``module:name``, which is called with the environment."""
    try:
        function = imported(name)
    except ValueError as error:
        raise NoDemonstrationsError(f"there is no {what} {name!r} ({key}: module:name): {error}") from error
    misfit = Signature(("the environment",), makes=True).misfit(function)
    if misfit:
        raise NoDemonstrationsError(f"{key}: {name} {misfit}: it returns what is called with observations")
    return function


@contextmanager
def _naming(env_id: str) -> Iterator[None]:
    """Report what an environment or its demonstrator raises, and the lines of its own code."""
    try:
        yield
    except (UserError, DeadlineExceededError):
        raise
    except Exception as error:
        raise EnvFailureError(f"{env_id}: a demonstration failed: {account_of(error)}") from error


def _require_action(action: np.ndarray, space: gymnasium.Space) -> None:
    """Raise NoDemonstrationsError for an action of a demonstrator that is none of ``space``.

    A Box may be left: the environment decides what is beyond its bounds."""
    fits = action.dtype.kind in "biuf" and action.size == math.prod(space.shape or ()) and np.isfinite(action).all()
    if fits and not isinstance(space, spaces.Box):
        fits = space.contains(action.reshape(space.shape or ()).astype(space.dtype or action.dtype))
    if not fits:
        numbers = np.array2string(action, threshold=8)
        raise NoDemonstrationsError(f"the demonstrator's action {numbers}, {list(action.shape)}, is none of {space}")


def expert_steps(
    env: gymnasium.Env,
    make_expert: MakeExpert,
    options: EnvConfig,
    *,
    start_seed: int,
    perturbation: float,
    policys_share: float = 0.0,
    make_gate: MakeGate | None = None,
    generator: np.random.Generator,
    every_observation: bool = True,
    to_the_end: bool = False,
) -> Generator[ExpertStep | ActionRequest, np.ndarray | None, None]:
    """Play one episode, up to its end or, unless ``to_the_end``, to the first decision after which it has succeeded.

    With ``perturbation`` that share of the decisions (`env.num_action_chunks` actions each) is random. Of the
    others a policy makes ``policys_share``, each requested by :class:`ActionRequest`; or with ``make_gate`` all that
    the gate leaves to it. Without ``every_observation`` those between decisions may lack their pictures (see
    :data:`DRAWS`). What is yielded is the caller's own: the environment and the demonstrator may use their arrays
    again. An episode without an end is truncated after :data:`MAX_DECISIONS`.

    Raises EnvFailureError for what the environment or the demonstrator raises, and where.
    """
    skips = not every_observation and may_skip_pictures(env, options)
    env.action_space.seed(int(generator.integers(2**31)))
    with _naming(options.id):
        observation = copied(parts(env.reset(seed=start_seed % 2**31), "reset")[0])
        act, gate = make_expert(env), None if make_gate is None else make_gate(env)
    over = succeeded = False
    decisions = 0
    while not over and (to_the_end or not succeeded):
        decisions += 1
        thrown_off = generator.random() < perturbation
        theirs: np.ndarray | None = None
        if not gate(observation) if gate is not None else policys_share and generator.random() < policys_share:
            theirs = yield ActionRequest(observation)
            assert theirs is not None
        for part in range(options.num_action_chunks):
            before = observation
            if skips:
                env.set_wrapper_attr(DRAWS, part == options.num_action_chunks - 1)
            with _naming(options.id):
                if theirs is not None:
                    action = np.array(theirs[part])
                else:
                    action = np.array(env.action_space.sample() if thrown_off else act(copied(observation)))
                    _require_action(action, env.action_space)
                # A number by itself is a scalar, which a table of the environment may be indexed by.
                seen, reward, terminated, truncated, info = parts(env.step(action.copy()[()]), "step")
                observation = copied(seen)
                ended, cut = flag(terminated, "terminated"), flag(truncated, "truncated")
                succeeded, earned = bool(success_of(info, options.success_key)), number(reward)
                keys = frozenset(str(key) for key in info or ())
            cut = cut or (not ended and decisions == MAX_DECISIONS and part == options.num_action_chunks - 1)
            over = ended or cut
            demonstrated = theirs is None and not thrown_off
            yield ExpertStep(before, action, earned, ended, cut, succeeded, keys, demonstrated)
            if over:
                break
