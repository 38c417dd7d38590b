"""How far the arm still has to go: what dense rewards are made of."""

from __future__ import annotations

import math

import numpy as np

from rlinf_envs.sim.tabletop.tasks import GOAL_DEPTH, SPLITS, Goal
from rlinf_envs.sim.tabletop.world import BODY_RADIUS, TIP_RADIUS, World

_CONTACT = BODY_RADIUS + TIP_RADIUS
_CLEAR = _CONTACT + 0.03
"""From the tip to a body that must not be touched, where the way leads past it: no less than the demonstrator keeps."""


def way_to_go(goal: Goal, world: World) -> float:
    """Table lengths that the tip has to move until it touches the body, around others if those must not be touched; and
    that the body has to be pushed."""
    target = world.bodies[goal.body]
    way = float(np.linalg.norm(target - world.tip))
    if goal.side is not None:
        axis, edge = SPLITS[goal.side]
        return max(0.0, way - _CONTACT) + max(0.0, abs(float(target[axis]) - edge) - GOAL_DEPTH)
    others = (centre for index, centre in enumerate(world.bodies) if index != goal.body)
    return max(0.0, way + sum(_detour(world.tip, target, centre) for centre in others) - _CONTACT)


def _detour(tip: np.ndarray, target: np.ndarray, centre: np.ndarray) -> float:
    """Return how much longer the way past the body at ``centre`` is than the straight one.

    It follows a tangent of the circle around the body, an arc of it, and the tangent to the target. 0 if the
    straight way is free."""
    to_tip, to_target, straight = tip - centre, target - centre, target - tip
    from_tip, from_target = (max(_CLEAR, float(np.linalg.norm(way))) for way in (to_tip, to_target))
    between = math.acos(float(np.clip(to_tip @ to_target / (from_tip * from_target), -1.0, 1.0)))
    arc = between - math.acos(_CLEAR / from_tip) - math.acos(_CLEAR / from_target)
    if arc <= 0.0:
        return 0.0
    tangents = math.sqrt(from_tip**2 - _CLEAR**2) + math.sqrt(from_target**2 - _CLEAR**2)
    return max(0.0, tangents + _CLEAR * arc - float(np.linalg.norm(straight)))
