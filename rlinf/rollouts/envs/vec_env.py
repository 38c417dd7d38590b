"""Environments side by side. A lane is one environment with its running number; lanes never reset by themselves.

Explicit resets are what makes a rollout a function of the seed: the caller names the seed of every episode, so an
episode depends on its seed and its actions alone, whatever steps beside it. They make restarts and resuming simple:
reset with the episode's seed and repeat its actions.
"""

from __future__ import annotations

import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from types import FrameType
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces

from rlinf.errors import UserError
from rlinf.spaces import Arrays, empty_leaves, observation_leaves, write_observation

FAILURE_KINDS = ("failures", "timeouts", "nan")
"""What can go wrong with an episode: the env raised, hung past its deadline, or returned a number that is none."""

# A viewer that is closed calls sys.exit in some simulators; in here that must not end more than an episode.
_RAISED = (Exception, SystemExit)


@dataclass
class StepResult:
    """What one step of some lanes gave; n is the number of lanes stepped, in the order asked for."""

    rewards: np.ndarray
    """[n] float64."""
    terminated: np.ndarray
    """[n] bool."""
    truncated: np.ndarray
    """[n] bool."""
    success: np.ndarray
    """[n] bool, what the env's info says under the success key (false where it says nothing)."""
    told: np.ndarray
    """[n] bool, whether it says anything there: many environments know no success."""
    _: KW_ONLY
    failed: dict[int, str]
    """Position within the lanes stepped -> kind of failure. The other columns mean nothing there."""
    idle: np.ndarray | None = None
    """[n] bool, where the step was spent on a reset and the action ignored; None: nowhere."""


class VecEnv(Protocol):
    """N environments; ``observations`` holds the newest observation of every lane ([N, ...] per leaf)."""

    num_lanes: int
    observation_space: spaces.Space
    action_space: spaces.Space
    observations: Arrays

    @property
    def last_failure(self) -> str:
        """The traceback of the newest failure, or another account of it; empty before the first."""

    def reset(self, lanes: Sequence[int], seeds: Sequence[int]) -> dict[int, str]:
        """Starts an episode in each of ``lanes``; returns position -> kind for those that failed to."""

    def step(self, lanes: Sequence[int], actions: np.ndarray) -> StepResult:
        """One step of each of ``lanes`` with actions [n, ...]."""

    def restart(self, lane: int) -> None:
        """Throws the environment of a lane away and makes a new one. It must be reset next."""

    def close(self) -> None: ...


class DeadlineExceededError(Exception):
    """An environment did not come back in time."""


class SyncVecEnv:
    """Environments stepped one after the other in this process: the fastest where a step costs little.

    Hangs in Python code and in interruptible system calls are broken off by an interval timer (main thread of a
    process only, which is where an actor runs its methods). A hang inside C code that never returns to the
    interpreter can not be broken off from within; `vectorization: async` can, at the price of processes.
    """

    def __init__(self, build: Callable[[], gymnasium.Env], num_lanes: int, success_key: str, timeout_s: float) -> None:
        self._build = build
        self._success_key = success_key
        self._timeout_s = timeout_s
        self.last_failure = ""
        self._envs = [build() for _ in range(num_lanes)]
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
                    observation, _ = self._envs[lane].reset(seed=int(seed) % 2**31)
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
                        observation, reward, terminated, truncated, info = self._envs[lane].step(actions[position])
                        if self._single is not None:
                            self._single[lane] = observation
                        else:
                            self._keep(lane, observation)
                        rewards[position] = reward
                        flags[0, position] = terminated
                        flags[1, position] = truncated
                        if key in info:
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

    def close(self) -> None:
        for env in self._envs:
            close_quietly(env)

    def _account(self, error: BaseException) -> str:
        """The kind of a failure; its traceback (the place where it hung, for a hang) is kept."""
        self.last_failure = "".join(traceback.format_exception(error))
        return "timeouts" if isinstance(error, DeadlineExceededError) else "failures"

    def _keep(self, lane: int, observation: object) -> None:
        write_observation(self.observations, lane, observation)


class SpacesDifferError(UserError):
    """Environments of one run whose observations or actions are of different kinds: no policy fits all of them."""


def require_alike(first: tuple[spaces.Space, spaces.Space], other: tuple[spaces.Space, spaces.Space], who: str) -> None:
    """Raises :class:`SpacesDifferError` where ``other`` (observation and action space) needs another policy.

    Bounds of observations may differ; ``who`` says in the message whose spaces the others are.
    """
    for leaf, (one, two) in unlike_leaves(first, other).items():
        raise SpacesDifferError(
            f"the {leaf} space of {who} is {two}, and that of the first environment is {one}. All environments of "
            "a run need the same: pad what varies to its largest size, and let env.kwargs choose no other space"
        )


def unlike_leaves(
    first: tuple[spaces.Space, spaces.Space], other: tuple[spaces.Space, spaces.Space]
) -> dict[str, tuple[spaces.Space | None, spaces.Space | None]]:
    """The leaves of two observation spaces, and "action", for which ``other`` needs another policy than ``first``.

    None stands for a leaf that is not there.
    """
    ones, others = ({**observation_leaves(seen), "action": action} for seen, action in (first, other))
    both = {name: (ones.get(name), others.get(name)) for name in {**ones, **others}}
    return {
        name: (one, two)
        for name, (one, two) in both.items()
        if not (one == two if name == "action" else _layout(one) == _layout(two))
    }


def _layout(leaf: spaces.Space | None) -> object:
    """What a policy's input layers depend on: neither bounds nor which characters a text may have."""
    if isinstance(leaf, spaces.Text):
        return leaf.max_length
    return (leaf.shape, leaf.dtype) if isinstance(leaf, spaces.Box) else leaf


def mark_not_a_number(
    failed: dict[int, str], lanes: Sequence[int], observations: Arrays, rewards: np.ndarray | None = None
) -> str:
    """Enters a failure for every lane whose newest reward or observation is not finite; says what the first one gave.

    ``rewards`` [n] are those of ``lanes``; None after a reset.
    """
    bad = np.zeros(len(lanes), dtype=bool) if rewards is None else ~np.isfinite(rewards)
    for leaf in observations.values():
        if leaf.dtype.kind == "f":
            # One sum is finite exactly when all its terms are (short of overflow, which is no observation either).
            total = leaf.reshape(len(leaf), -1).sum(axis=1)
            if not np.isfinite(total).all():
                bad |= ~np.isfinite(total)[list(lanes)]
    news = [position for position in np.nonzero(bad)[0].tolist() if position not in failed]
    failed.update(dict.fromkeys(news, "nan"))
    if not news:
        return ""
    return _not_finite(lanes[news[0]], observations, 0.0 if rewards is None else float(rewards[news[0]]))


def _not_finite(lane: int, observations: Arrays, reward: float) -> str:
    """Which number of a lane is none, in words."""
    if not np.isfinite(reward):
        return f"the environment returned the reward {reward}"
    for name, leaf in observations.items():
        bad = np.argwhere(~np.isfinite(leaf[lane]))
        if len(bad):
            place = tuple(bad[0].tolist())
            where = f"{name}[{', '.join(map(str, place))}]" if place else name
            return f"the environment returned an observation with {where} = {leaf[(lane, *place)]}"
    return "the environment returned an observation whose sum overflows"


def close_quietly(env: gymnasium.Env) -> None:
    """Closes an environment that may be broken already; what it raises then is of no interest."""
    try:
        env.close()
    except Exception:
        return


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raises :class:`DeadlineExceededError` inside the block after ``seconds``. Does nothing outside the main thread.

    A timer that was running before (a test's time limit, say) goes on afterwards with what was left of it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    started = time.monotonic()
    handler_before = signal.signal(signal.SIGALRM, _raise_deadline)
    left_before, interval_before = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler_before)
        if left_before > 0.0:
            left = max(left_before - (time.monotonic() - started), 0.001)
            signal.setitimer(signal.ITIMER_REAL, left, interval_before)


def _raise_deadline(signum: int, frame: FrameType | None) -> None:
    raise DeadlineExceededError
