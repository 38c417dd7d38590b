"""Environments that are stepped one after the other in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from rlinf.config.schema import EnvConfig
from rlinf.rollouts.deadline import DeadlineExceededError, can_interrupt, deadline
from rlinf.rollouts.env_errors import account_of
from rlinf.rollouts.envs.make_env import EnvConstructionError, make_env
from rlinf.rollouts.envs.vec_env import StepResult, close_quietly, mark_not_a_number, require_alike
from rlinf.spaces import empty_leaves, write_observation

# A viewer that is closed calls sys.exit in some simulators; in here that must not end more than an episode.
_RAISED = (Exception, SystemExit)
_STEP = "observation, reward, terminated, truncated, info"


class EnvContractError(TypeError):
    """An environment returned something that gymnasium's interface does not allow."""


class SyncVecEnv:
    """Environments stepped one after the other in this process: the fastest where a step costs little.

    Hangs are interrupted by a timer, which works in the main thread of a process (:func:`deadline`). Elsewhere, and
    against C code that never returns to the interpreter, the environments need a process of their own
    (:class:`IsolatedVecEnv`, whose processes hold environments of this kind).
    """

    def __init__(
        self, options: EnvConfig, num_lanes: int, make: Callable[[EnvConfig], gymnasium.Env] = make_env
    ) -> None:
        if options.step_timeout_s and not can_interrupt():
            raise RuntimeError("env.step_timeout_s works in a process's main thread: use IsolatedVecEnv here")
        self._options, self._make = options, make
        self._success_key = options.success_key
        self._timeout_s = options.step_timeout_s
        self.last_failure = ""
        self._envs = [self._build() for _ in range(num_lanes)]
        self.num_lanes = num_lanes
        self.observation_space = self._envs[0].observation_space
        self.action_space = self._envs[0].action_space
        for lane, env in enumerate(self._envs):
            spaces = env.observation_space, env.action_space
            require_alike((self.observation_space, self.action_space), spaces, f"environment {lane}")
        self.metadata = self._envs[0].metadata
        self.observations = empty_leaves(self.observation_space, (num_lanes,))
        # The plain case, one array per observation, is worth a shortcut: it is most of the cost of cheap envs.
        self._single = self.observations["observation"] if list(self.observations) == ["observation"] else None

    def reset(self, lanes: Sequence[int], seeds: Sequence[int]) -> dict[int, str]:
        failed: dict[int, str] = {}
        for position, (lane, seed) in enumerate(zip(lanes, seeds, strict=True)):
            try:
                with deadline(self._timeout_s):
                    returned = self._envs[lane].reset(seed=int(seed) % 2**31)
                observation, _ = _parts(returned, "reset", "observation, info")
                self._keep(lane, observation)
            except _RAISED as error:
                failed[position] = self._account(error)
        self.last_failure = mark_not_a_number(failed, lanes, self.observations) or self.last_failure
        return failed

    def step(self, lanes: Sequence[int], actions: np.ndarray) -> StepResult:
        count = len(lanes)
        rewards, flags, failed = np.zeros(count), np.zeros((4, count), dtype=bool), {}
        key = self._success_key
        position = 0
        while position < count:
            try:
                with deadline(self._timeout_s):
                    # One timer for all lanes of a step: it is re-armed only after a failure.
                    while position < count:
                        lane = lanes[position]
                        returned = self._envs[lane].step(actions[position])
                        observation, reward, terminated, truncated, info = _parts(returned, "step", _STEP)
                        if self._single is not None:
                            self._single[lane] = observation
                        else:
                            self._keep(lane, observation)
                        rewards[position] = reward if isinstance(reward, float) else _number(reward)
                        flags[0, position] = terminated
                        flags[1, position] = truncated
                        if info and key in info:
                            flags[2:, position] = bool(np.any(info[key])), True
                        position += 1
            except _RAISED as error:
                failed[position] = self._account(error)
                position += 1
        result = StepResult(rewards, *flags, failed=failed)
        self.last_failure = mark_not_a_number(failed, lanes, self.observations, rewards) or self.last_failure
        return result

    def render(self, lane: int) -> Any:
        """What the environment draws of itself, in the render mode that it was built with."""
        with deadline(self._timeout_s):
            return self._envs[lane].render()

    def restart(self, lane: int) -> None:
        close_quietly(self._envs[lane])
        self._envs[lane] = self._build()

    def _build(self) -> gymnasium.Env:
        limit = self._options.start_timeout_s if can_interrupt() else 0.0
        try:
            with deadline(limit):
                return self._make(self._options)
        except DeadlineExceededError as error:
            words = f"no environment within {limit:g} s (cluster.start_timeout_s)"
            raise EnvConstructionError(f"env.id {self._options.id!r}: {account_of(error, words)}") from error

    def close(self) -> None:
        for env in self._envs:
            close_quietly(env)

    def _account(self, error: BaseException) -> str:
        """The kind of a failure; what was raised, and where (the place where it hung, for a hang), is kept."""
        if isinstance(error, DeadlineExceededError):
            words = f"no answer within {self._timeout_s:g} s (env.step_timeout_s)"
            self.last_failure = account_of(error, words)
            return "timeouts"
        self.last_failure = account_of(error)
        return "failures"

    def _keep(self, lane: int, observation: object) -> None:
        write_observation(self.observations, lane, observation)


def _parts(returned: Any, method: str, names: str) -> Any:
    """What ``method`` returned, if it has as many parts as gymnasium asks for."""
    count = names.count(",") + 1
    if not isinstance(returned, tuple) or len(returned) != count:
        given = f"{len(returned)} values" if isinstance(returned, tuple) else type(returned).__name__
        raise EnvContractError(f"{method}() returned {given} instead of the {count} of gymnasium's interface ({names})")
    return returned


def _number(reward: Any) -> float:
    """A reward that is not a float already; arrays of one element are numbers."""
    try:
        return float(reward.item() if isinstance(reward, np.ndarray) else reward)
    except (TypeError, ValueError) as error:
        raise EnvContractError(f"step() returned the reward {reward!r}, which is not a number") from error
