"""Actions of OpenVLA's networks in the units of its data sets, and of an environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlinf.data.spaces import SpaceError

Gripper = Literal["as_trained", "opens_at_minus_one", "opens_at_one"]
ENDS = {"quantiles": ("q01", "q99"), "bounds": ("min", "max")}
"""The statistics that `policy.vla.checkpoint.statistics` names."""


class TrainedUnits:
    """Numbers in [-1, 1] between two statistics of a data set; those that ``mask`` leaves out are taken as they are."""

    def __init__(self, statistics: Mapping[str, Any], kind: str, leaf: str) -> None:
        """Raise SpaceError if the ``statistics`` of ``leaf`` lack what ``kind`` needs."""
        missing = [name for name in ENDS[kind] if name not in statistics]
        if missing:
            raise SpaceError(f"policy.vla.checkpoint.statistics: {kind} need {', '.join(missing)} of {leaf}")
        self._low, self._high = (np.array(statistics[name], dtype=np.float64) for name in ENDS[kind])
        self._mask = np.array(statistics.get("mask", np.ones(len(self._low))), dtype=bool)

    def __len__(self) -> int:
        return len(self._low)

    def whole(self, numbers: NDArray[Any]) -> NDArray[np.float64]:
        """Numbers [..., n] in [-1, 1] in the units of the data set."""
        unit = numbers.astype(np.float64)
        return np.where(self._mask, 0.5 * (unit + 1.0) * (self._high - self._low) + self._low, unit)

    def scaled(self, numbers: NDArray[Any]) -> NDArray[np.float64]:
        """Numbers [..., n] of the data set in [-1, 1], cut at its ends; one that never changes is 0."""
        width = self._high - self._low
        unit = np.where(width != 0, 2.0 * (numbers - self._low) / (width + 1e-8) - 1.0, 0.0)
        return np.clip(np.where(self._mask, unit, numbers), -1.0, 1.0)


class ActionsOfSpace:
    """Actions [N, K, A] in the units of the network to those of an environment, and back."""

    def __init__(self, space: spaces.Space, units: TrainedUnits, *, chunk: int, gripper: Gripper) -> None:
        """Raise SpaceError for another number of numbers."""
        shape = space.shape if isinstance(space, spaces.Box) else None
        if shape is None or shape != (len(units),):
            raise SpaceError(
                f"policy.vla.checkpoint: an action of the checkpoint has {len(units)} numbers, and here it is {space}"
            )
        self._space, self._units, self._chunk = space, units, chunk
        self._opens_at = {"as_trained": 0, "opens_at_minus_one": -1, "opens_at_one": 1}[gripper]

    def to_env(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Return actions [N, A], with chunks [N, K, A], within the space's bounds."""
        assert isinstance(self._space, spaces.Box)
        whole = self._units.whole(numbers)
        if self._opens_at:
            whole[..., -1] = np.sign(2.0 * whole[..., -1] - 1.0) * self._opens_at
        whole = np.clip(whole, self._space.low, self._space.high)
        return (whole[:, 0] if self._chunk == 1 else whole).astype(self._space.dtype)

    def from_env(self, actions: NDArray[Any]) -> NDArray[np.float64]:
        """Return the network's numbers [N, K, A] of actions [N, A] or [N, K, A]."""
        parts = np.asarray(actions, dtype=np.float64).reshape(len(actions), self._chunk, len(self._units)).copy()
        if self._opens_at:
            parts[..., -1] = (parts[..., -1] * self._opens_at + 1.0) / 2.0
        return self._units.scaled(parts)
