"""Ordinary gymnasium environments whose spaces are text, and some that break the contract."""

from __future__ import annotations

from typing import Any

import gymnasium


class Countdown(gymnasium.Env[str, str]):
    """Name the number below the last one, down to 0."""

    observation_space = action_space = gymnasium.spaces.Text(100)

    def __init__(self, highest: int = 3) -> None:
        self.highest, self.number = highest, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.number = int(self.np_random.integers(1, self.highest + 1))
        return f"count down from {self.number}", {"answer": "0"}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        right = action.strip() == str(self.number - 1)
        self.number -= 1
        info = {"reward/right": float(right)}
        return ("right" if right else "wrong"), float(right), self.number == 0, False, info

    def demonstrate(self, observation: str) -> str:
        return str(self.number - 1)


class Numbered(Countdown):
    """Declares its number of tasks."""

    num_tasks = 3

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        gymnasium.Env.reset(self, seed=seed)
        self.number = 1 + int((options or {})["task_id"])
        return f"count down from {self.number}", {}


class Raises(Countdown):
    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return str(1 / 0), 0.0, False, False, {}


class Forgets(Countdown):
    """Draws from a generator that the seed does not reach."""

    starts = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        type(self).starts += 1
        return f"start {type(self).starts}", {}


class NoText(Countdown):
    observation_space = gymnasium.spaces.Discrete(3)  # type: ignore[assignment]


class Infinite(Countdown):
    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", float("inf"), True, False, {"success": False}


gymnasium.register("Countdown-v0", entry_point=Countdown)
