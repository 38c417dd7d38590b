"""Environments side by side.

A sub-environment is one environment with its running number; sub-environments never reset by themselves.

Explicit resets are what makes a rollout a function of the seed: the caller names the seed of every episode.
So an episode depends on its seed and its actions alone, not on the other sub-environments. They make restarts
and resuming simple: reset with the episode's seed and repeat its actions.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Protocol

import gymnasium
import numpy as np
from gymnasium import spaces

from rlinf.base.errors import UserError
from rlinf.data.spaces import Arrays, observation_leaves, outside_categories
from rlinf.rollouts.deadline import DeadlineExceededError, can_interrupt, deadline

FAILURE_KINDS = ("failures", "timeouts", "nan")
"""What can go wrong with an episode: the env raised, hung past its deadline, or returned a non-finite value."""

LARGEST = float(np.finfo(np.float32).max)
"""Policies compute in float32: what is larger is infinite to them."""
_CLOSE_S = 10.0
"""Of environments that are closed together."""


@dataclass
class StepResult:
    """The result of one step of some sub-environments; n is the number of those stepped, in the order requested."""

    rewards: np.ndarray
    """[n] float64."""
    terminated: np.ndarray
    """[n] bool."""
    truncated: np.ndarray
    """[n] bool."""
    success: np.ndarray
    """[n] bool, the value of the success key in the env's info (false where it is absent)."""
    has_success: np.ndarray
    """[n] bool, whether the key is there: many environments report no success."""
    _: KW_ONLY
    failed: dict[int, str]
    """Position within the sub-environments stepped -> kind of failure. The other columns mean nothing there."""
    idle: np.ndarray | None = None
    """[n] bool, where the step was spent on a reset and the action ignored; None: nowhere."""

    def of(self, env_indices: Sequence[int]) -> StepResult:
        """Select the result of some sub-environments, if this is that of all, none of which was idle."""
        index = np.asarray(env_indices, dtype=np.int64)
        columns = (self.rewards, self.terminated, self.truncated, self.success, self.has_success)
        failed = {position: self.failed[one] for position, one in enumerate(env_indices) if one in self.failed}
        return StepResult(*(column[index] for column in columns), failed=failed)


class VecEnv(Protocol):
    """N environments; ``observations`` holds the newest observation of every sub-environment ([N, ...] per leaf)."""

    num_envs: int
    observation_space: spaces.Space
    action_space: spaces.Space
    observations: Arrays

    @property
    def last_failure(self) -> str:
        """The newest failure, in words; empty before the first."""

    def reset(self, env_indices: Sequence[int], seeds: Sequence[int]) -> dict[int, str]:
        """Start an episode in each of ``env_indices``; return position -> kind for those that failed to."""

    def step(self, env_indices: Sequence[int], actions: np.ndarray, *, observe: bool = True) -> StepResult:
        """Step each of ``env_indices`` once with actions [n, ...].

        Without ``observe`` the observations of this step are not read: environments whose pictures cost much (they
        have an attribute ``draws_observations``) leave them out.
        """

    def restart(self, env_index: int) -> None:
        """Throws the environment of a sub-environment away and makes a new one. It must be reset next."""

    def close(self) -> None: ...


class SpacesDifferError(UserError):
    """Environments of one run whose observations or actions are of different kinds: no policy fits all of them."""


def require_alike(first: tuple[spaces.Space, spaces.Space], other: tuple[spaces.Space, spaces.Space], who: str) -> None:
    """Raise :class:`SpacesDifferError` if ``other`` (observation and action space) needs another policy.

    Bounds of observations may differ; ``who`` names in the message the owner of the other spaces.
    """
    for leaf, (one, two) in unlike_leaves(first, other).items():
        raise SpacesDifferError(
            f"the {leaf} space of {who} is {two}, and that of the first environment is {one}. All environments of "
            "a run need the same: pad what varies to its largest size, and let env.kwargs choose no other space"
        )


def unlike_leaves(
    first: tuple[spaces.Space, spaces.Space], other: tuple[spaces.Space, spaces.Space]
) -> dict[str, tuple[spaces.Space | None, spaces.Space | None]]:
    """Find the leaves (and "action") for which the space ``other`` needs another policy than ``first``.

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
    """Return the layout that a policy's input layers depend on: neither bounds nor which characters a text may have."""
    if isinstance(leaf, spaces.Text):
        return leaf.max_length
    return (leaf.shape, leaf.dtype) if isinstance(leaf, spaces.Box) else leaf


class ObservationCheck:
    """Finds sub-environments whose newest reward or observation means nothing to a policy."""

    def __init__(self, space: spaces.Space) -> None:
        leaves = observation_leaves(space).items()
        self._categories = {name: leaf for name, leaf in leaves if not isinstance(leaf, spaces.Box | spaces.Text)}

    def mark(
        self,
        failed: dict[int, str],
        env_indices: Sequence[int],
        observations: Arrays,
        rewards: np.ndarray | None = None,
    ) -> str:
        """Enter a failure for each whose reward or observation is not finite, or has a category outside its space.

        Return what the first one gave. ``rewards`` [n] are those of ``env_indices``; None after a reset.
        """
        bad = np.zeros(len(env_indices), dtype=bool) if rewards is None else ~(np.abs(rewards) <= LARGEST)
        outside: dict[int, str] = {}
        for name, leaf in observations.items():
            if leaf.dtype.kind == "f":
                # One sum is finite exactly when all its terms are (short of overflow, which is no observation either).
                total = leaf.reshape(len(leaf), -1).sum(axis=1, dtype=np.result_type(leaf.dtype, np.float32))
                fits = np.abs(total) <= LARGEST
                if not fits.all():
                    bad |= ~fits[list(env_indices)]
            elif name in self._categories:
                rows = outside_categories(self._categories[name], leaf[list(env_indices)])
                outside |= dict.fromkeys(np.nonzero(rows)[0].tolist(), name)
        kinds = dict.fromkeys(outside, "failures") | dict.fromkeys(np.nonzero(bad)[0].tolist(), "nan")
        news = [position for position in kinds if position not in failed]
        failed.update({position: kinds[position] for position in news})
        if not news:
            return ""
        first = news[0]
        env_index = env_indices[first]
        if kinds[first] == "nan":
            return _not_finite(env_index, observations, 0.0 if rewards is None else float(rewards[first]))
        name = outside[first]
        value = observations[name][env_index].tolist()
        return f"the environment returned {name} = {value}, which is outside {self._categories[name]}"


def _not_finite(env_index: int, observations: Arrays, reward: float) -> str:
    """Which number of a sub-environment is none, in words."""
    if not abs(reward) <= LARGEST:
        return f"the environment returned the reward {reward}"
    for name, leaf in observations.items():
        bad = np.argwhere(~(np.abs(leaf[env_index]) <= LARGEST))
        if len(bad):
            index = tuple(bad[0].tolist())
            where = f"{name}[{', '.join(map(str, index))}]" if index else name
            return f"the environment returned an observation with {where} = {leaf[(env_index, *index)]}"
    return "the environment returned an observation whose sum overflows"


def close_quietly(*envs: gymnasium.Env) -> None:
    """Close environments that may be broken already; errors on closing are ignored.

    All together have :data:`_CLOSE_S`; a hang is cut off then, with a warning that names the class.
    """
    name = ""
    try:
        with deadline(_CLOSE_S if can_interrupt() else 0.0):
            for env in envs:
                name = type(env.unwrapped).__name__
                try:
                    env.close()
                except DeadlineExceededError:
                    raise
                except (Exception, SystemExit):
                    continue
    except DeadlineExceededError:
        words = f"{name}.close() was cut off: closing took more than {_CLOSE_S:g} s"
        warnings.warn(words, RuntimeWarning, stacklevel=2)
