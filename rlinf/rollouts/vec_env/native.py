"""Environments that bring a vector implementation of their own: one call steps them all.

Such environments reset their sub-environments from one stream of their own, so their episodes have no seeds.
Groups of equal starts, evaluation on fixed starts and exact resuming need other kinds of vector envs. Those
are `seeded_native.py` for the vector implementations listed there, and `seeded_batch.py` for those that
declare it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from rlinf.base.errors import UserError
from rlinf.data.spaces import Arrays, empty_leaves, exactly, require_entries
from rlinf.rollouts.vec_env.arrays import host_array, host_leaves, like_observations
from rlinf.rollouts.vec_env.env_contract import EnvContractError, parts, success_of
from rlinf.rollouts.vec_env.make_env import make_native_env
from rlinf.rollouts.vec_env.vec_env import ObservationCheck, StepResult
from rlinf.schema import EnvConfig


class AutoresetError(UserError):
    """A vector env that does not declare how it resets, or does not give what its way of resetting needs."""


class NativeVecEnv:
    """Fits `VecEnv` for fragments: all sub-environments step together. Every autoreset mode of gymnasium is read:

    * NEXT_STEP: a reset takes a step of its own, which is marked ``idle``.
    * SAME_STEP: the step that ends an episode returns the next one's first observation. It has the last one of the
      ended episode in ``info["final_obs"]`` (in older ones ``final_observation``). The latter is shown until
      :meth:`reset` is called, as everywhere else.
    * DISABLED: :meth:`reset` resets those that are named (``options={"reset_mask": ...}``).

    Observations and what comes with them may be numpy arrays, torch tensors or other DLPack arrays; of the host's
    memory nothing is copied. Actions are tensors if observations are.
    """

    def __init__(self, options: EnvConfig, num_envs: int) -> None:
        self._options = options
        self._env = make_native_env(options, num_envs)
        self._mode = _autoreset_mode(options.id, self._env.metadata)
        self.num_envs = num_envs
        self.last_failure = ""
        self.observation_space = self._env.single_observation_space
        self.action_space = self._env.single_action_space
        self._check = ObservationCheck(self.observation_space)
        self._dtypes = {name: leaf.dtype for name, leaf in empty_leaves(self.observation_space, ()).items()}
        self.observations = host_leaves(self._env.observation_space.sample())
        self._newest: Any = None
        self._over = np.zeros(num_envs, dtype=bool)
        self._begun: Arrays = {}
        """SAME_STEP: the newest observations with the first ones of new episodes."""
        self._started = False

    def reset(self, env_indices: Sequence[int], seeds: Sequence[int]) -> dict[int, str]:
        """Seed the environment's stream with the first seed, in the first call; later episodes follow from that."""
        if not self._started:
            observations, _ = parts(self._env.reset(seed=int(seeds[0]) % 2**31), "reset")
            self._take(observations)
            self._started = True
            if not all(leaf.flags.writeable for leaf in self.observations.values()):
                # JAX's arrays are not; policies only read them.
                warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        elif self._mode is AutoresetMode.DISABLED and len(env_indices):
            mask = np.zeros(self.num_envs, dtype=bool)
            mask[list(env_indices)] = True
            observations, _ = parts(self._env.reset(options={"reset_mask": mask}), "reset")
            self._take(observations, mask)
        elif self._mode is AutoresetMode.SAME_STEP:
            for name, leaf in self._begun.items():
                self.observations[name][list(env_indices)] = leaf[list(env_indices)]
        return {}

    def step(self, env_indices: Sequence[int], actions: np.ndarray, *, observe: bool = True) -> StepResult:
        """Step all sub-environments at once; ``idle`` if the environment spent the step on a reset."""
        result = self._advance(actions)
        wrong = self._check.mark(result.failed, env_indices, self.observations, result.rewards)
        if wrong:
            raise UserError(
                f"env.id {self._options.id!r}: {wrong}, and a native vector env cannot restart one sub-environment"
            )
        return result

    def _advance(self, actions: np.ndarray) -> StepResult:
        """Step them in the same way, whatever numbers come."""
        # The environment may write into what it is given, and the caller keeps the actions.
        accepted = like_observations(actions.copy(), self._newest)
        observations, rewards, ends, cuts, info = parts(self._env.step(accepted), "step")
        self._take(observations)
        rewards = self._column(rewards, "rewards", np.float64)
        terminated, truncated = self._column(ends, "terminated", bool), self._column(cuts, "truncated", bool)
        over = terminated | truncated
        success, has_success = success_of_info(info, self._options.success_key, self.num_envs)
        if self._mode is AutoresetMode.SAME_STEP and over.any():
            self._show_final(info, over)
            if "final_info" in info:  # then the other entries are of the next episode's reset
                at_end = success_of_info(info["final_info"], self._options.success_key, self.num_envs)
                success, has_success = np.where(over, at_end[0], success), np.where(over, at_end[1], has_success)
        idle = self._over if self._mode is AutoresetMode.NEXT_STEP else None
        self._over = over
        return StepResult(rewards, terminated, truncated, success, has_success, failed={}, idle=idle)

    def restart(self, env_index: int) -> None:
        raise RuntimeError(f"{self._options.id}: a native vector env cannot restart one of its sub-environments")

    def close(self) -> None:
        self._env.close()

    def _take(self, observations: Any, mask: np.ndarray | None = None) -> None:
        """Enter new observations, of the sub-environments under ``mask`` (None: all).

        Those in the host's memory are not copied: the caller has read them before the environment writes the next
        ones.
        """
        self._newest = observations
        leaves = host_leaves(observations)
        require_entries(leaves, self._dtypes)
        for name, values in leaves.items():
            leaf = exactly(values, self._dtypes[name], f"env.id {self._options.id!r}: {name}")
            if mask is None:
                self.observations[name] = leaf
            else:
                of_rows = mask.reshape(-1, *(1,) * (leaf.ndim - 1))  # [N, 1, ...]
                self.observations[name] = np.where(of_rows, leaf, self.observations[name])

    def _column(self, values: Any, name: str, dtype: type) -> np.ndarray:
        """Return a result of ``step`` as [N] of ``dtype``; axes of length 1 are taken off.

        Flags come as whole numbers or floats, too, and would select rows by number.
        """
        array = host_array(values)
        if array.size != self.num_envs:
            raise EnvContractError(
                f"env.id {self._options.id!r}: step() gave {name} of shape {list(array.shape)}, and one for each of "
                f"the {self.num_envs} sub-environments is needed"
            )
        return array.reshape(self.num_envs).astype(dtype)

    def _show_final(self, info: Mapping[str, Any], over: np.ndarray) -> None:
        """Show the last observations of ended episodes, and keep the first ones of the next for the reset."""
        finals = info.get("final_obs", info.get("final_observation"))
        if finals is None:
            raise AutoresetError(
                f"env.id {self._options.id!r} resets in the same step and does not give the last observation of an "
                'episode in info["final_obs"], from which truncated episodes are valued: use env.vectorization: sync'
            )
        self._begun = dict(self.observations)
        # What the environment returned stays as it is: it may be its own state.
        self.observations = {name: leaf.copy() for name, leaf in self._begun.items()}
        stacked = host_leaves(finals)
        if all(name in stacked and stacked[name].shape == leaf.shape for name, leaf in self.observations.items()):
            for name, leaf in self.observations.items():
                leaf[over] = stacked[name][over]
            return
        for env_index in np.nonzero(over)[0].tolist():
            final = host_leaves(_at(finals, env_index))
            for name, leaf in self.observations.items():
                leaf[env_index] = final[name]


def _at(finals: Any, env_index: int) -> Any:
    """One sub-environment's observation in ``final_obs``: an array of objects, or a batch like any observation."""
    if isinstance(finals, Mapping):
        return {name: _at(leaf, env_index) for name, leaf in finals.items()}
    return tuple(_at(leaf, env_index) for leaf in finals) if isinstance(finals, tuple) else finals[env_index]


def _autoreset_mode(env_id: str, metadata: Mapping[str, Any]) -> AutoresetMode:
    """Return how the environment resets, from its metadata."""
    modes = ", ".join(mode.name for mode in AutoresetMode)
    declared = metadata.get("autoreset_mode")
    try:
        return AutoresetMode(declared)
    except ValueError as error:
        what = "does not declare" if declared is None else f"declares {declared!r} for"
        raise AutoresetError(
            f"env.id {env_id!r}: its vector env {what} how it resets (metadata['autoreset_mode'], one of {modes} of "
            "gymnasium.vector.AutoresetMode), and a wrong guess would train on wrong transitions. Add it to the class, "
            "or use env.vectorization: sync"
        ) from error


def success_of_info(info: Any, key: str, num_envs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (success, whether the sub-environment reported it), bool [N] each, of a vector env's info.

    In addition to the values under ``key``, gymnasium keeps under ``_key`` which sub-environments reported one.
    Before gymnasium 1.0 there was a dictionary, or None, for each of them instead.
    """
    if not isinstance(info, Mapping):
        reported = [success_of(one, key) for one in info]
        return np.array([bool(one) for one in reported]), np.array([one is not None for one in reported])
    if key not in info:
        return np.zeros(num_envs, dtype=bool), np.zeros(num_envs, dtype=bool)
    has_success = host_array(info.get(f"_{key}", np.ones(num_envs, dtype=bool))).astype(bool)
    values = host_array(info[key])
    if values.dtype.kind not in "biuf":
        reported = [success_of({key: one}, key) for one in values.tolist()]
        has_success = has_success & np.array([one is not None for one in reported])
        values = np.array([bool(one) for one in reported])
    return values.astype(bool) & has_success, has_success
