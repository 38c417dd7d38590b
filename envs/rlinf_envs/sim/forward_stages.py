"""Physics steps that compute each stage of MuJoCo's pipeline once, if its inputs have not changed since."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


class ForwardStages:
    """`mj_forward` and `mj_step` with the same results bit for bit.

    robosuite makes three passes in each physics step: one of its own, one before its controller reads the arm,
    and that of `mj_step`. Contacts, inertias and velocity terms depend on positions and velocities alone, which
    are the same in all three; forces and constraints are solved again each time, since each solution starts from
    the last.

    Outside of :meth:`same_model` they are MuJoCo's own.
    """

    def __init__(self, model: Any, data: Any) -> None:
        self._model, self._data = model, data
        self._positions, self._velocities = np.empty_like(data.qpos), np.empty_like(data.qvel)
        self._same_model = self._known = False

    @contextmanager
    def same_model(self) -> Iterator[None]:
        """Nothing of the model changes meanwhile (for example the position of a fixture), and no mocap body is
        moved."""
        self._same_model, self._known = True, False
        try:
            yield
        finally:
            self._same_model = self._known = False

    def forward(self) -> None:
        import mujoco

        if self._unchanged():
            mujoco.mj_forwardSkip(self._model, self._data, mujoco.mjtStage.mjSTAGE_VEL.value, 0)
            return
        mujoco.mj_forward(self._model, self._data)
        self._positions[:], self._velocities[:] = self._data.qpos, self._data.qvel
        self._known = self._same_model

    def step(self, with_udd: bool = True) -> None:
        """``with_udd`` is of robosuite's signature, and has no meaning there either."""
        import mujoco

        if self._unchanged():
            mujoco.mj_step2(self._model, self._data)
        else:
            mujoco.mj_step(self._model, self._data)
        self._known = False

    def _unchanged(self) -> bool:
        return (
            self._known
            and bool((self._positions == self._data.qpos).all())
            and bool((self._velocities == self._data.qvel).all())
        )
