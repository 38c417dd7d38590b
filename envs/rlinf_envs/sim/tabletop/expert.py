"""A scripted demonstrator that sees positions: it goes around what is in the way, and pushes from behind."""

from __future__ import annotations

import numpy as np

from rlinf_envs.sim.tabletop.tasks import SPLITS, Goal
from rlinf_envs.sim.tabletop.world import BODY_RADIUS, REACH, TIP_RADIUS, World

_CONTACT = BODY_RADIUS + TIP_RADIUS
_MARGIN = 0.03
"""Distance kept from what must not be touched."""
_ALIGNED = 0.35
"""Sine of the angle up to which a body is pushed on; beyond it the tip goes behind it again."""


def expert_action(goal: Goal, world: World, speed: float = 1.0) -> np.ndarray:
    """Return the next action [2] in [-speed, speed], float32; ``speed`` is the used share of the tip's reach."""
    body = world.bodies[goal.body]
    if goal.side is None:
        others = [centre for index, centre in enumerate(world.bodies) if index != goal.body]
        return _toward(world.tip, body, others, speed)
    axis, edge = SPLITS[goal.side]
    push = np.zeros(2)
    push[axis] = 1.0 if edge > 0.5 else -1.0
    offset = body - world.tip
    ahead, aside = float(offset @ push), float(np.abs(offset[1 - axis]))
    if ahead > 0 and aside < _ALIGNED * _CONTACT:
        # Behind it: push, and steer the tip back to the body's middle line.
        correction = np.zeros(2)
        correction[1 - axis] = 2.0 * offset[1 - axis]
        return _scaled(push * REACH + correction, speed)
    behind = np.clip(body - push * (_CONTACT + 0.02), TIP_RADIUS, 1.0 - TIP_RADIUS)
    return _toward(world.tip, behind, list(world.bodies), speed)


def _toward(tip: np.ndarray, target: np.ndarray, obstacles: list[np.ndarray], speed: float) -> np.ndarray:
    """Compute a step to ``target``, bent around the nearest obstacle that lies in the way."""
    way = target - tip
    distance = float(np.linalg.norm(way))
    if distance < 1e-9:
        return np.zeros(2, dtype=np.float32)
    heading = way / distance
    nearest: tuple[float, np.ndarray] | None = None
    for centre in obstacles:
        offset = centre - tip
        ahead = float(offset @ heading)
        aside = float(np.linalg.norm(offset - ahead * heading))
        if 0.0 < ahead < distance and aside < _CONTACT + _MARGIN and (nearest is None or ahead < nearest[0]):
            nearest = ahead, centre
    if nearest is None:
        return _scaled(way, speed)
    return _scaled(REACH * _around(tip, nearest[1], heading), speed)


def _around(tip: np.ndarray, centre: np.ndarray, heading: np.ndarray) -> np.ndarray:
    """Return the direction that keeps clear of a disc: its tangent, on the side that ``heading`` leans to."""
    offset = centre - tip
    gap = float(np.linalg.norm(offset))
    normal = offset / gap
    tangent = np.array([-normal[1], normal[0]])
    # The shorter way around, unless the table ends there.
    side = 1.0 if float(tangent @ heading) >= 0 else -1.0
    beyond = centre + side * tangent * (_CONTACT + _MARGIN)
    if not ((beyond > TIP_RADIUS) & (beyond < 1 - TIP_RADIUS)).all():
        side = -side
    near = np.clip((_CONTACT + _MARGIN) / gap, 0.0, 1.0)
    # Far away the tangent of the circle of clearance; inside it, straight along and a little outward.
    ahead = np.sqrt(1.0 - near * near) - (0.3 if gap < _CONTACT + _MARGIN else 0.0)
    return ahead * normal + near * side * tangent


def _scaled(move: np.ndarray, speed: float) -> np.ndarray:
    """Scale a move in table lengths to an action: steps of ``speed`` times the reach until it is near."""
    action = move / REACH
    return (action / max(1.0, float(np.abs(action).max()) / speed)).astype(np.float32)
