"""A scripted demonstrator for LIBERO's tasks that put one thing somewhere: it knows where everything is.

From above it goes over the thing, down, closes its fingers, lifts, goes over the place, and lets go. What it does next
follows from where things are now, so that it begins again where a thing has slipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Phase = Literal["over", "down", "close", "lift", "carry", "lower", "open"]

_GAIN = 30.0
"""Of an action per metre: full speed until 3 cm are left (LIBERO's controller takes 1 for 5 cm)."""
_TURN_GAIN = 3.0
_CLEAR = 0.10  # metres over the top of a thing, or of the place
_NEAR = 0.012
_CLOSING, _OPENING = 10, 8  # steps
_LOST = 0.06
"""A thing that is farther from the fingers than when it was taken has slipped."""
_FINGERS_BELOW_TOP = 0.03
_LOWEST = 0.012  # of the fingertips over the table


@dataclass(frozen=True)
class Grasp:
    """How things of a kind are taken."""

    offset: tuple[float, float] = (0.0, 0.0)
    """From the thing's middle to where the fingers close, metres along the world's axes."""
    turn: bool = False
    """Whether the fingers are turned along the thing's short side."""


GRASPS = {"akita_black_bowl": Grasp(offset=(0.0, 0.055))}
"""A bowl is taken by its rim. Everything else is taken by its middle."""


class NoScriptError(ValueError):
    """A task that is not a matter of taking one thing somewhere."""


class LiberoExpert:
    """Acts on a LIBERO engine with one goal, `in` or `on`. :meth:`begin` starts an episode."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._model, self._data = engine.sim.model._model, engine.sim.data._data
        self._phase: Phase = "over"
        self._waited = 0

    def begin(self) -> None:
        self._phase, self._waited = "over", 0
        self._thing, self._place = self._goal()
        self._grasp = GRASPS.get(self._thing.rpartition("_")[0], Grasp())

    def action(self) -> np.ndarray:
        """The next action [7], float32: moves and turns in the controller's units, fingers open (-1) or closed (1)."""
        self._advance()
        target = {
            "over": self._over(self._fingers_on_thing()),
            "down": self._fingers_on_thing(),
            "close": self._taken_at,
            "lift": self._lifted,
            "carry": self._over_place(),
            "lower": self._over_place(low=True),
            "open": self._fingers(),
        }[self._phase]
        action = np.zeros(7, dtype=np.float32)
        action[:3] = np.clip(_GAIN * (target - self._fingers()), -1.0, 1.0)
        action[5] = np.clip(_TURN_GAIN * self._turn_left(), -1.0, 1.0)
        action[6] = 1.0 if self._phase in ("close", "lift", "carry", "lower") else -1.0
        return action
