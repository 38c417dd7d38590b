"""The actions of every running episode since its reset: what rebuilds an environment after a restart of the run."""

from __future__ import annotations

import numpy as np


class ActionHistory:
    """Decisions of N lanes. Appending is one list operation for all lanes; slicing happens once in an iteration."""

    def __init__(self, num_lanes: int) -> None:
        self._decisions: list[np.ndarray] = []  # each [N, ...]
        self._first = np.zeros(num_lanes, dtype=np.int64)  # index of each lane's first decision since its reset

    def begin(self, lanes: list[int]) -> None:
        """An episode starts in each of ``lanes``: what was recorded for them is no longer needed."""
        self._first[lanes] = len(self._decisions)
        needless = int(self._first.min())
        if needless > 4096:
            del self._decisions[:needless]
            self._first -= needless

    def append(self, actions: np.ndarray) -> None:
        """One decision of all lanes [N, ...]."""
        self._decisions.append(actions)

    def since_reset(self) -> list[np.ndarray]:
        """Per lane, [decisions, ...]; copies."""
        first = int(self._first.min())
        if first == len(self._decisions):
            return [np.zeros(0) for _ in self._first]
        # Together first: a thousand lanes of a thousand decisions are a million slices otherwise.
        decisions = np.stack(self._decisions[first:])
        own = enumerate((self._first - first).tolist())
        return [decisions[begin:, lane].copy() if begin < len(decisions) else np.zeros(0) for lane, begin in own]

    def load(self, per_lane: list[np.ndarray]) -> None:
        """Takes what :meth:`since_reset` gave."""
        longest = max(len(actions) for actions in per_lane)
        filler = next((actions[0] for actions in per_lane if len(actions)), np.zeros(()))
        decisions = np.zeros((longest, len(per_lane), *filler.shape), dtype=filler.dtype)
        for lane, actions in enumerate(per_lane):
            self._first[lane] = longest - len(actions)
            if len(actions):
                decisions[longest - len(actions) :, lane] = actions
        self._decisions = list(decisions)


class StagedHistory:
    """The same for lanes that decide in several stages, each at its own pace."""

    def __init__(self, stages: list[list[int]]) -> None:
        self._stages = stages
        self._histories = [ActionHistory(len(lanes)) for lanes in stages]
        self._place = {lane: (stage, at) for stage, lanes in enumerate(stages) for at, lane in enumerate(lanes)}

    def begin(self, lanes: list[int]) -> None:
        """An episode starts in each of ``lanes``."""
        for stage, history in enumerate(self._histories):
            mine = [self._place[lane][1] for lane in lanes if self._place[lane][0] == stage]
            if mine:
                history.begin(mine)

    def append(self, stage: int, actions: np.ndarray) -> None:
        """One decision of the lanes of a stage [n, ...]."""
        self._histories[stage].append(actions)

    def since_reset(self) -> list[np.ndarray]:
        """Per lane, [decisions, ...]."""
        per_stage = [history.since_reset() for history in self._histories]
        return [per_stage[stage][at] for _, (stage, at) in sorted(self._place.items())]

    def load(self, per_lane: list[np.ndarray]) -> None:
        """Takes what :meth:`since_reset` gave."""
        for lanes, history in zip(self._stages, self._histories, strict=True):
            history.load([per_lane[lane] for lane in lanes])
