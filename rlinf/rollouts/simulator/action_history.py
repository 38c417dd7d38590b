"""The actions of every running episode since its reset: what rebuilds an environment after a restart of the run."""

from __future__ import annotations

import numpy as np


class ActionHistory:
    """Decisions of N sub-environments. Appending is one list operation for all sub-environments; slicing happens
    once in an iteration."""

    def __init__(self, num_envs: int) -> None:
        self._decisions: list[np.ndarray] = []  # each [N, ...]
        self._first = np.zeros(
            num_envs, dtype=np.int64
        )  # index of each sub-environment's first decision since its reset

    def begin(self, env_indices: list[int]) -> None:
        """Start an episode in each of ``env_indices``: what was recorded for them is no longer needed."""
        self._first[env_indices] = len(self._decisions)
        needless = int(self._first.min())
        if needless > 4096:
            del self._decisions[:needless]
            self._first -= needless

    def append(self, actions: np.ndarray) -> None:
        """One decision of all sub-environments [N, ...]."""
        self._decisions.append(actions)

    def since_reset(self) -> list[np.ndarray]:
        """Per sub-environment, [decisions, ...]; copies."""
        first = int(self._first.min())
        if first == len(self._decisions):
            return [np.zeros(0) for _ in self._first]
        # Together first: a thousand sub-environments of a thousand decisions are a million slices otherwise.
        decisions = np.stack(self._decisions[first:])
        own = enumerate((self._first - first).tolist())
        return [
            decisions[begin:, env_index].copy() if begin < len(decisions) else np.zeros(0) for env_index, begin in own
        ]

    def load(self, per_env: list[np.ndarray]) -> None:
        """Restore what :meth:`since_reset` gave."""
        longest = max(len(actions) for actions in per_env)
        filler = next((actions[0] for actions in per_env if len(actions)), np.zeros(()))
        decisions = np.zeros((longest, len(per_env), *filler.shape), dtype=filler.dtype)
        for env_index, actions in enumerate(per_env):
            self._first[env_index] = longest - len(actions)
            if len(actions):
                decisions[longest - len(actions) :, env_index] = actions
        self._decisions = list(decisions)


class StagedHistory:
    """The same for sub-environments that decide in several stages, each at its own pace."""

    def __init__(self, stages: list[list[int]]) -> None:
        self._stages = stages
        self._histories = [ActionHistory(len(env_indices)) for env_indices in stages]
        self._positions = {
            env_index: (stage, at)
            for stage, env_indices in enumerate(stages)
            for at, env_index in enumerate(env_indices)
        }

    def begin(self, env_indices: list[int]) -> None:
        """Start an episode in each of ``env_indices``."""
        for stage, history in enumerate(self._histories):
            mine = [
                self._positions[env_index][1] for env_index in env_indices if self._positions[env_index][0] == stage
            ]
            if mine:
                history.begin(mine)

    def append(self, stage: int, actions: np.ndarray) -> None:
        """One decision of the sub-environments of a stage [n, ...]."""
        self._histories[stage].append(actions)

    def since_reset(self) -> list[np.ndarray]:
        """Per sub-environment, [decisions, ...]."""
        per_stage = [history.since_reset() for history in self._histories]
        return [per_stage[stage][at] for _, (stage, at) in sorted(self._positions.items())]

    def load(self, per_env: list[np.ndarray]) -> None:
        """Restore what :meth:`since_reset` gave."""
        for env_indices, history in zip(self._stages, self._histories, strict=True):
            history.load([per_env[env_index] for env_index in env_indices])
