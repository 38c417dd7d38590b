"""A scripted demonstrator for LIBERO's tasks that put one thing somewhere: it reads all positions.

From above it goes over the thing, down, closes its fingers, lifts, goes over the target (and down, onto a
plate), and lets go. If a thing has slipped from its fingers it begins again.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

Phase = Literal["over", "down", "close", "lift", "carry", "lower", "open"]

_GAIN = 30.0
"""Of an action per metre: full speed until 3 cm are left (LIBERO's controller takes 1 for 5 cm)."""
_TURN_GAIN = 4.0
_ABOVE = 0.08
"""Metres between fingers and a thing's top, and between a carried thing's bottom and the target's top."""
_SET_DOWN = 0.01
"""Metres between a carried thing's bottom and the target's top where it is let go."""
_NEAR, _ALMOST = 0.012, 0.02
_CLOSING, _OPENING = 8, 6
"""Steps until fingers are closed, and open."""
_PATIENCE = {"lift": 80, "carry": 80}
_STUCK = 30
"""Steps after which a phase that does not arrive ends, of :data:`_PATIENCE` where it names more: a basket is far."""
_LOST = 0.05
"""A thing that is so much farther from the fingers than when it was taken has slipped."""
_DEPTH, _TALL_DEPTH = 0.035, 0.4
"""Fingers reach so far below a thing's top, in metres, or this share of a tall thing's height: cartons have narrow tops
that a finger would be caught under."""
_OPEN, _CLOSED = -1.0, 1.0
_RIMS = ("akita_black_bowl", "plate")
"""Kinds that are wider than the fingers, and are taken by their rim."""


class NoScriptError(ValueError):
    """A task that is not a matter of taking one thing somewhere."""


class LiberoExpert:
    """Acts on a LIBERO engine whose goal is one predicate, `in` or `on`. :meth:`begin` starts an episode."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._model, self._data = engine.sim.model._model, engine.sim.data._data
        self.begin()

    def begin(self) -> None:
        """Make the next action the first of an episode, for the goal that the engine has then."""
        self._relation = self._thing = self._target_name = ""
        self._enter("over")
        self._reach, self._held_at = 0.0, np.zeros(3)

    def _read_goal(self) -> None:
        goals = self._engine.parsed_problem["goal_state"]
        if len(goals) != 1 or goals[0][0] not in ("in", "on") or goals[0][1] not in self._engine.objects_dict:
            raise NoScriptError(f"no script for the goal {goals}: it must put one thing in or on something")
        self._relation, self._thing, self._target_name = goals[0]
        self._site = self._engine.robots[0].eef_site_id

    def action(self, speed: float = 1.0) -> np.ndarray:
        """Return the next action [7], float32.

        Moves and turns are in the controller's units, fingers are open (-1) or closed (1).

        ``speed``, at most 1, bounds how far it moves along each axis.
        """
        if not self._thing:
            self._read_goal()
        low, high = self._extent(self._thing)
        fingers = self._data.site_xpos[self._site].copy()
        grasp = self._grasp(low, high)
        target = self._target(fingers, grasp, low, high)
        self._steps += 1
        self._advance(fingers, target, grasp)
        action = np.zeros(7, dtype=np.float32)
        action[:3] = np.clip(_GAIN * (target - fingers), -speed, speed)
        action[3:6] = np.clip(_TURN_GAIN * self._upright(), -1.0, 1.0)
        action[6] = _OPEN if self._phase in ("over", "down", "open") else _CLOSED
        return action

    def _target(self, fingers: np.ndarray, grasp: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return where the fingers are to go in this phase."""
        if self._phase == "over":
            # Sideways only once they are over everything: other things stand around.
            over = np.array([*grasp[:2], high[2] + _ABOVE])
            aside = float(np.linalg.norm(over[:2] - fingers[:2]))
            return over if aside < 0.1 or fingers[2] > high[2] + 0.5 * _ABOVE else np.array([*fingers[:2], over[2]])
        if self._phase == "down":
            return grasp
        if self._phase in ("close", "open"):
            return self._held_at
        target = self._target_middle()
        carried = target[2] + (_SET_DOWN if self._phase == "lower" else _ABOVE) + (fingers[2] - low[2])
        if self._phase == "lift":
            return np.array([*self._held_at[:2], carried])
        middle = 0.5 * (low[:2] + high[:2])
        return np.array([*(fingers[:2] + target[:2] - middle), carried])

    def _advance(self, fingers: np.ndarray, target: np.ndarray, grasp: np.ndarray) -> None:
        """Go on to the next phase, if this one is done."""
        left = np.abs(target - fingers)
        stuck = self._steps > _PATIENCE.get(self._phase, _STUCK)
        if self._phase in ("lift", "carry", "lower") and np.linalg.norm(grasp - fingers) > self._reach + _LOST:
            self._enter("over")
        elif self._phase == "over":
            if left[:2].max() < _NEAR and left[2] < 0.03:
                self._enter("down")
        elif self._phase == "down":
            if left.max() < _NEAR or stuck:
                self._enter("close")
                self._held_at = fingers
        elif self._phase == "close":
            if self._steps >= _CLOSING:
                self._reach = float(np.linalg.norm(grasp - fingers))
                self._enter("lift")
        elif self._phase == "lift":
            if left[2] < _ALMOST or stuck:
                self._enter("carry")
        elif self._phase == "carry" and self._relation == "on":
            if left[:2].max() < _NEAR or stuck:
                self._enter("lower")
        elif self._phase in ("carry", "lower"):  # into a basket it may fall
            if left.max() < _ALMOST or stuck:
                self._held_at = fingers
                self._enter("open")
        elif self._steps >= _OPENING:
            self._enter("over")

    def _enter(self, phase: Phase) -> None:
        self._phase, self._steps = phase, 0

    def _grasp(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return where the fingers close: in the middle of the thing, or on its rim at the side that they open to."""
        middle = 0.5 * (low + high)
        if self._thing.rpartition("_")[0] in _RIMS:
            middle[1] = high[1] - 0.008
            return np.array([*middle[:2], high[2] - 0.02])
        height = high[2] - low[2]
        lowest = middle[2] if height < 0.04 else low[2] + 0.02
        return np.array([*middle[:2], max(high[2] - max(_DEPTH, _TALL_DEPTH * height), lowest)])

    def _target_middle(self) -> np.ndarray:
        """Return the middle of the target at the height of its top [3]."""
        sites = self._engine.object_sites_dict
        name = self._target_name
        if name in sites:
            name = sites[name].parent_name
        low, high = self._extent(name)
        return np.array([*(0.5 * (low[:2] + high[:2])), high[2]])

    def _extent(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the lowest and the highest corner [3] of what a thing touches with."""
        root = self._engine.obj_body_id[name]
        model, data = self._model, self._data
        geoms = [
            geom
            for geom in range(model.ngeom)
            if (model.geom_contype[geom] or model.geom_conaffinity[geom])
            and root in (model.geom_bodyid[geom], model.body_parentid[model.geom_bodyid[geom]])
        ]
        half = np.abs(data.geom_xmat[geoms].reshape(-1, 3, 3)) @ model.geom_aabb[geoms, 3:, None]
        middle = data.geom_xpos[geoms] + np.einsum(
            "nij,nj->ni", data.geom_xmat[geoms].reshape(-1, 3, 3), model.geom_aabb[geoms, :3]
        )
        return (middle - half[..., 0]).min(axis=0), (middle + half[..., 0]).max(axis=0)

    def _upright(self) -> np.ndarray:
        """Return the turn [3], axis times angle, back to fingers that point straight down and open along y."""
        now = self._data.site_xmat[self._site].reshape(3, 3)
        requested = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -1.0]])
        # Either finger may be on either side.
        other = requested @ np.diag([-1.0, -1.0, 1.0])
        best = max((requested, other), key=lambda turn: float(np.trace(turn @ now.T)))
        turn = best @ now.T
        return 0.5 * np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])
