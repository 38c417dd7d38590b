"""Reward against goal: how a run's rewards and its verdicts moved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlinf.report.trends import early, late, risen

if TYPE_CHECKING:
    from rlinf.report.runs import RunRecord

_REWARD_AND_GOAL = (
    ("reward/mean", "rollout/accuracy"),
    ("reward/mean", "eval/accuracy"),
    ("rollout/return", "rollout/success_once"),
)
"""What is optimised, and what is meant by it."""
_SHORTEST = 5
"""Values that a trend needs."""


@dataclass(frozen=True)
class Movement:
    """A reward and its goal over a run."""

    words: str
    paid: int
    """1 if the reward rose, -1 if it fell, 0 without a trend."""
    meant: int
    """The same of the goal."""
    goal: float
    """The goal at the end."""

    @property
    def hacked(self) -> bool:
        """Whether what is paid rose while what is meant fell."""
        return self.paid > 0 and self.meant < 0


def movements(run: RunRecord) -> list[Movement]:
    """Return the movements of the rewards and goals that the run logs often enough."""
    result = []
    for paid, meant in _REWARD_AND_GOAL:
        reward, goal = run.values(paid), run.values(meant)
        if len(reward) >= _SHORTEST and len(goal) >= _SHORTEST:
            words = f"{paid} went from {early(reward):.3g} to {late(reward):.3g}, {meant} from {early(goal):.3g} "
            words += f"to {late(goal):.3g}."
            result.append(Movement(words, risen(reward), risen(goal), late(goal)))
    return result
