"""Environments that a person might have got wrong, each in one way."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Sound(gymnasium.Env):
    """Twelve steps of random numbers; what the others are before they are broken."""

    observation_space: spaces.Space = spaces.Box(-5, 5, (3,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.left = 12
        return self.observation(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        self.left -= 1
        return self.observation(), 1.0, False, self.left == 0, {}

    def observation(self) -> Any:
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)


class NanAtReset(Sound):
    """Half of its episodes begin with an observation that is no number."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        observation, info = super().reset(seed=seed)
        if self.np_random.random() < 0.5:
            observation[1] = np.nan
        return observation, info


class OneNumber(Sound):
    """Numpy would copy its number into all three positions."""

    def observation(self) -> Any:
        return np.float32([0.5])


class Forgetful(Sound):
    """Its observations lack an entry of its space, and have another."""

    observation_space = spaces.Dict({"position": Sound.observation_space, "speed": Sound.observation_space})

    def observation(self) -> Any:
        return {"position": super().observation(), "sped": super().observation()}


class Growing(Sound):
    """Every other one has another observation space."""

    made = 0

    def __init__(self, size: int | None = None) -> None:
        Growing.made += 1
        self.size = 3 + Growing.made % 2 if size is None else size
        self.observation_space = spaces.Box(-5, 5, (self.size,), np.float32)

    def observation(self) -> Any:
        return np.zeros(self.size, np.float32)


class Leaves(Sound):
    """Calls sys.exit in the middle of an episode, as a viewer does that was closed."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        if self.left == 6 and self.np_random.random() < 0.5:
            raise SystemExit("the window was closed")
        return super().step(action)


class LateStarter(Sound):
    """Every episode breaks in its second step, until ``failing`` have, over all environments of this kind."""

    broken = 0

    def __init__(self, failing: int) -> None:
        self.failing = failing

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        if self.left == 11 and LateStarter.broken < self.failing:
            LateStarter.broken += 1
            raise RuntimeError("not yet")
        return super().step(action)


class Dead(Sound):
    """Never makes a step: ``how`` it fails is a reset or a step that raises, or a step that hangs."""

    def __init__(self, how: str) -> None:
        self.how = how

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        if self.how == "reset":
            raise RuntimeError("no such scene")
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        if self.how == "hang":
            time.sleep(60.0)
        raise RuntimeError("no such joint")


class Wearing(Sound):
    """Sound until ``worn``; from then on every step raises."""

    worn = False

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        if Wearing.worn:
            raise RuntimeError("worn out")
        return super().step(action)


for kind in (Sound, NanAtReset, OneNumber, Forgetful, Growing, Leaves, LateStarter, Dead, Wearing):
    gymnasium.register(f"{kind.__name__}-v0", f"{__name__}:{kind.__name__}")
