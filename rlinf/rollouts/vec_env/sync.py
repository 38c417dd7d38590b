"""Environments that are stepped one after the other in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from rlinf.data.goals import GoalRewards
from rlinf.data.spaces import Arrays, empty_leaves, write_observation
from rlinf.rollouts.deadline import DeadlineExceededError, can_interrupt, deadline
from rlinf.rollouts.env_errors import account_of
from rlinf.rollouts.vec_env.env_contract import first_observation, flag, number, parts, success_of
from rlinf.rollouts.vec_env.goal_rewards import goal_rewards
from rlinf.rollouts.vec_env.make_env import DRAWS, make_env, make_in_time, may_skip_pictures
from rlinf.rollouts.vec_env.vec_env import ObservationCheck, StepResult, close_quietly, require_alike
from rlinf.schema import EnvConfig

# A viewer that is closed calls sys.exit in some simulators; in here that must not end more than an episode.
_RAISED = (Exception, SystemExit)
_FLAG = (bool, np.bool_)


class WorkingDirectory:
    """The directory of environments, which they may change for themselves: paths of the run begin where they did.

    A class, since each step enters it: a generator costs as much as both system calls.
    """

    def __init__(self) -> None:
        self._inside = self._outside = os.getcwd()

    def __enter__(self) -> None:
        self._outside = os.getcwd()
        if self._inside != self._outside:
            os.chdir(self._inside)

    def __exit__(self, *_: object) -> None:
        self._inside = os.getcwd()
        if self._inside != self._outside:
            os.chdir(self._outside)


class SyncVecEnv:
    """Environments stepped one after the other in this process: the fastest if a step costs little.

    Hangs are interrupted by a timer, which works in the main thread of a process (:func:`deadline`). Elsewhere,
    and against C code that never returns to the interpreter, the environments need a process of their own
    (:class:`IsolatedVecEnv`, whose processes hold environments of this kind).
    """

    def __init__(
        self, options: EnvConfig, num_envs: int, make: Callable[[EnvConfig], gymnasium.Env] = make_env
    ) -> None:
        if options.step_timeout_s and not can_interrupt():
            raise RuntimeError("env.step_timeout_s works in a process's main thread: use IsolatedVecEnv here")
        self._options, self._make = options, make
        self._success_key = options.success_key
        self._timeout_s = options.step_timeout_s
        self.last_failure = ""
        self._folder = WorkingDirectory()
        self._envs = [self._build() for _ in range(num_envs)]
        self.num_envs = num_envs
        self.observation_space = self._envs[0].observation_space
        self.action_space = self._envs[0].action_space
        for env_index, env in enumerate(self._envs):
            spaces = env.observation_space, env.action_space
            require_alike((self.observation_space, self.action_space), spaces, f"environment {env_index}")
        self.metadata = self._envs[0].metadata or {}
        self._check = ObservationCheck(self.observation_space)
        self.observations = empty_leaves(self.observation_space, (num_envs,))
        # The plain case, one array per observation, is worth a shortcut: it is most of the cost of cheap envs.
        self._single = self.observations["observation"] if list(self.observations) == ["observation"] else None
        self._may_skip = may_skip_pictures(self._envs[0], options)

    def reset(self, env_indices: Sequence[int], seeds: Sequence[int]) -> dict[int, str]:
        failed: dict[int, str] = {}
        for position, (env_index, seed) in enumerate(zip(env_indices, seeds, strict=True)):
            try:
                with self._folder, deadline(self._timeout_s):
                    returned = self._envs[env_index].reset(seed=int(seed) % 2**31)
                write_observation(self.observations, env_index, first_observation(returned))
            except _RAISED as error:
                failed[position] = self._account(error)
        self.last_failure = self._check.mark(failed, env_indices, self.observations) or self.last_failure
        return failed

    def step(self, env_indices: Sequence[int], actions: np.ndarray, *, observe: bool = True) -> StepResult:
        count = len(env_indices)
        if self._may_skip:
            for env_index in env_indices:
                self._envs[env_index].set_wrapper_attr(DRAWS, observe)
        rewards, flags, failed = np.zeros(count), np.zeros((4, count), dtype=bool), {}
        key, single = self._success_key, self._single
        # An environment may write into what it is given, and the caller keeps the actions.
        actions = actions.copy()
        position = 0
        while position < count:
            try:
                with self._folder, deadline(self._timeout_s):
                    # One timer for all sub-environments of a step: it is re-armed only after a failure.
                    while position < count:
                        env_index = env_indices[position]
                        returned = self._envs[env_index].step(actions[position])
                        observation, reward, terminated, truncated, info = parts(returned, "step")
                        if single is not None and _is_like(observation, single):
                            single[env_index] = observation
                        else:
                            write_observation(self.observations, env_index, observation)
                        rewards[position] = reward if isinstance(reward, float) else number(reward)
                        flags[0, position] = (
                            terminated if isinstance(terminated, _FLAG) else flag(terminated, "terminated")
                        )
                        flags[1, position] = truncated if isinstance(truncated, _FLAG) else flag(truncated, "truncated")
                        if info and (success := success_of(info, key)) is not None:
                            flags[2:, position] = success, True
                        position += 1
            except _RAISED as error:
                failed[position] = self._account(error)
                position += 1
        result = StepResult(rewards, *flags, failed=failed)
        self.last_failure = self._check.mark(failed, env_indices, self.observations, rewards) or self.last_failure
        return result

    def render(self, env_index: int) -> Any:
        """Return the environment's own picture, in the render mode that it was built with."""
        with self._folder, deadline(self._timeout_s):
            return self._envs[env_index].render()

    def expert_action(self, env_index: int) -> np.ndarray:
        """Return the action of the environment's own demonstrator now (if it ``demonstrates``)."""
        with self._folder, deadline(self._timeout_s):
            return np.asarray(self._envs[env_index].get_wrapper_attr("expert_action")())

    def goal_rewards(self, achieved: np.ndarray, desired: np.ndarray) -> GoalRewards:
        """Compute the rewards of goals [n, ...] by the first environment. Raises SpaceError if it cannot."""
        with self._folder, deadline(self._timeout_s):
            return goal_rewards(self._envs[0], achieved, desired)

    @property
    def demonstrates(self) -> bool:
        """Whether the environment has a demonstrator whose actions are those of its action space."""
        env = self._envs[0]
        return env.has_wrapper_attr("expert_action") and env.action_space == env.unwrapped.action_space

    def restart(self, env_index: int) -> None:
        close_quietly(self._envs[env_index])
        self._envs[env_index] = self._build()

    def write_into(self, observations: Arrays) -> None:
        """Keep the observations [N, ...] in these arrays from now on."""
        for name, leaf in self.observations.items():
            observations[name][:] = leaf
        self.observations = observations
        self._single = observations["observation"] if list(observations) == ["observation"] else None

    def _build(self) -> gymnasium.Env:
        with self._folder:
            return make_in_time(self._options, self._make)

    def close(self) -> None:
        close_quietly(*self._envs)

    def _account(self, error: BaseException) -> str:
        """Return the kind of a failure; keep what was raised, and the line (of the hang, for a hang)."""
        if isinstance(error, DeadlineExceededError):
            words = f"no answer within {self._timeout_s:g} s (env.step_timeout_s)"
            self.last_failure = account_of(error, words)
            return "timeouts"
        self.last_failure = account_of(error)
        return "failures"


def _is_like(observation: Any, stacked: np.ndarray) -> bool:
    """Whether an observation is an array of the dtype and shape of a row of ``stacked`` [N, ...]."""
    return (
        type(observation) is np.ndarray
        and observation.dtype == stacked.dtype
        and observation.shape == stacked.shape[1:]
    )
