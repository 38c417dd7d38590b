"""The tasks of the arm: start states by number, instructions, and when a task is solved or spoilt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rlinf_envs.sim.tabletop.world import BODY_RADIUS, TIP_RADIUS, World

Task = Literal["touch", "push"]
Split = Literal["train", "eval"]

COLOURS = ("red", "green", "blue", "yellow")
SHAPES = ("disc", "square", "triangle")
SPLITS = {"left": (0, 0.0), "right": (0, 1.0), "far": (1, 1.0), "near": (1, 0.0)}
"""Name of an edge -> (axis, position): near is the bottom of the image."""
GOAL_DEPTH = 0.2
"""`push` is done when the body's centre is within so much of the edge."""
_CLEARANCE = 0.02
_SIDE_ROOM = BODY_RADIUS + 2 * TIP_RADIUS + _CLEARANCE
"""From every edge to a body's centre: the tip fits behind it, so that it can be pushed anywhere."""
_START_STRIP = 0.15
"""The tip starts within so much of the near edge; no body reaches into it."""
_SPLITS = {"train": 0, "eval": 1}


@dataclass(frozen=True)
class Goal:
    """The body that is named, and the edge it is to go to (`touch`: none)."""

    body: int
    side: str | None
    instruction: str


@dataclass(frozen=True)
class Start:
    """A start state: a function of split and number alone."""

    world: World
    kinds: tuple[tuple[str, str], ...]
    """(colour, shape) of each body, all different."""
    goal: Goal


def start_state(task: Task, split: Split, number: int, bodies: int, clear_ways: bool = False) -> Start:
    """Start state ``number`` of a split. The splits draw from different streams: they share none.

    ``clear_ways``: the tip can go straight to each body, past the others by a body's radius or more.
    """
    draw = np.random.Generator(np.random.PCG64(np.random.SeedSequence([_SPLITS[split], number])))
    all_kinds = [(colour, shape) for colour in COLOURS for shape in SHAPES]
    kinds = tuple(all_kinds[int(kind)] for kind in draw.permutation(len(all_kinds))[:bodies])
    goal = _goal(task, draw, kinds)
    while True:
        placed = _scatter(draw, bodies)
        if (goal.side is None or not solved(goal, placed, set())) and (not clear_ways or _ways_are_clear(placed)):
            return Start(placed, kinds, goal)


def other_goal(start: Start) -> Start:
    """Return the same table with another goal: the next body and, if things are pushed, another edge if need be.

    Raises:
        ValueError: one body to be touched leaves no other goal.
    """
    sides = list(SPLITS)
    side = start.goal.side
    if len(start.kinds) == 1 and side is None:
        raise ValueError("a table with one body has no other goal: set bodies to 2 or more")
    body = (start.goal.body + 1) % len(start.kinds)
    for turned in range(len(start.kinds) == 1, len(sides)):
        to = None if side is None else sides[(sides.index(side) + turned) % len(sides)]
        goal = Goal(body, to, _words(start.kinds[body], to))
        if side is None or not solved(goal, start.world, set()):
            break
    return replace(start, goal=goal)


def solved(goal: Goal, world: World, touched: set[int]) -> bool:
    """`touch`: the named body was touched. `push`: it lies at the named edge."""
    if goal.side is None:
        return goal.body in touched
    axis, edge = SPLITS[goal.side]
    return abs(float(world.bodies[goal.body, axis]) - edge) <= GOAL_DEPTH


def spoilt(goal: Goal, touched: set[int]) -> bool:
    """`touch`: another body was touched. Pushing may move anything aside."""
    return goal.side is None and bool(touched - {goal.body})


def _goal(task: Task, draw: np.random.Generator, kinds: tuple[tuple[str, str], ...]) -> Goal:
    body = int(draw.integers(len(kinds)))
    side = None if task == "touch" else list(SPLITS)[int(draw.integers(len(SPLITS)))]
    return Goal(body, side, _words(kinds[body], side))


def _words(kind: tuple[str, str], side: str | None) -> str:
    name = " ".join(kind)
    return f"touch the {name}" if side is None else f"push the {name} to the {side} edge"


def _ways_are_clear(world: World) -> bool:
    """Whether the straight way from the tip to each body passes the others by a body's radius or more."""
    offsets = world.bodies - world.tip
    distances = np.sqrt(np.square(offsets).sum(-1))
    headings = offsets / distances[:, None]
    ahead = headings @ offsets.T  # [target, other]
    aside = np.abs(headings[:, :1] * offsets[:, 1] - headings[:, 1:] * offsets[:, 0])
    blocks = (ahead > 0) & (ahead < distances[:, None]) & (aside < TIP_RADIUS + 2 * BODY_RADIUS)
    np.fill_diagonal(blocks, False)
    return not blocks.any()


def _scatter(draw: np.random.Generator, bodies: int) -> World:
    """Tip at the near edge, bodies anywhere beyond it, separated from each other by a gap that the tip fits through."""
    tip = np.array([draw.uniform(TIP_RADIUS, 1 - TIP_RADIUS), draw.uniform(TIP_RADIUS, _START_STRIP)])
    gap = 2 * (BODY_RADIUS + TIP_RADIUS) + _CLEARANCE
    lowest = _START_STRIP + TIP_RADIUS + BODY_RADIUS + _CLEARANCE
    while True:
        centres = draw.uniform([_SIDE_ROOM, lowest], 1 - _SIDE_ROOM, size=(bodies, 2))
        distances = np.sqrt(np.square(centres[:, None] - centres[None]).sum(-1)) + 2.0 * np.eye(bodies)
        if (distances > gap).all():
            return World(tip, centres)
