"""Environments of every kind of space, and with every kind of misbehaviour: `env.kwargs: {case: NAME}` picks one."""

from __future__ import annotations

import sys
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

BOX = spaces.Box(-1, 1, (3,), np.float32)
OBSERVATIONS: dict[str, spaces.Space] = {
    "Tuple": spaces.Tuple((BOX, spaces.Discrete(4))),
    "Dict": spaces.Dict({"a": BOX, "b": spaces.Discrete(4)}),
    "nested Dict": spaces.Dict({"a": spaces.Dict({"b": BOX, "c": spaces.MultiBinary(2)})}),
    "Discrete(start=-2)": spaces.Discrete(5, start=-2),
    "MultiBinary": spaces.MultiBinary(4),
    "MultiBinary 2d": spaces.MultiBinary((2, 3)),
    "MultiDiscrete": spaces.MultiDiscrete([2, 5]),
    "float64 unbounded": spaces.Box(-np.inf, np.inf, (3,), np.float64),
    "float16": spaces.Box(-1, 1, (3,), np.float16),
    "uint8": spaces.Box(0, 255, (3,), np.uint8),
    "int64": spaces.Box(-9, 9, (3,), np.int64),
    "bool": spaces.Box(0, 1, (3,), np.bool_),
    "scalar Box": spaces.Box(-1, 1, (), np.float32),
    "Box of size 0": spaces.Box(-1, 1, (0,), np.float32),
    "4x4 image": spaces.Box(0, 255, (4, 4, 3), np.uint8),
    "84x84 image": spaces.Box(0, 255, (84, 84, 3), np.uint8),
    "large Box": spaces.Box(-1, 1, (200, 200), np.float32),
}
ACTIONS: dict[str, spaces.Space] = {
    "MultiDiscrete act": spaces.MultiDiscrete([2, 3]),
    "MultiBinary act": spaces.MultiBinary(3),
    "unbounded Box act": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "float64 act": spaces.Box(-1, 1, (2,), np.float64),
    "int Box act": spaces.Box(-3, 3, (2,), np.int64),
    "Discrete(start=5) act": spaces.Discrete(3, start=5),
    "Discrete(1) act": spaces.Discrete(1),
}
REFUSED: dict[str, tuple[spaces.Space, spaces.Space]] = {
    "Sequence obs": (spaces.Sequence(BOX), spaces.Discrete(2)),
    "Graph obs": (spaces.Graph(BOX, None), spaces.Discrete(2)),
    "Text obs": (spaces.Text(8), spaces.Discrete(2)),
    "Tuple act": (BOX, spaces.Tuple((spaces.Discrete(2), BOX))),
    "Dict act": (BOX, spaces.Dict({"a": BOX})),
    "Text act": (BOX, spaces.Text(8)),
    "empty Box act": (BOX, spaces.Box(-1, 1, (0,), np.float32)),
    "huge Discrete act": (BOX, spaces.Discrete(2**31)),
    "huge Discrete obs": (spaces.Discrete(10**9), spaces.Discrete(2)),
}
REWARDS: dict[str, Any] = {
    "NaN reward": float("nan"),
    "inf reward": float("inf"),
    "huge reward": 1e39,
    "wide reward": -1e30,
    "None reward": None,
    "array reward": np.zeros(2),
    "string reward": "much",
}
SEEN: dict[str, Any] = {
    "NaN obs": np.full(3, np.nan, np.float32),
    "wrong shape": np.zeros(2, np.float32),
    "None obs": None,
    "obs of words": "left",
}
HANG_S = 60.0


class Zoo(gymnasium.Env):
    """Episodes of five steps."""

    def __init__(self, case: str) -> None:
        self.case = case
        self.observation_space, self.action_space = REFUSED.get(
            case, (OBSERVATIONS.get(case, BOX), ACTIONS.get(case, spaces.Discrete(2)))
        )
        if case == "raises in __init__":
            raise RuntimeError("no such robot")
        if case == "hangs in __init__":
            time.sleep(HANG_S)
        self.observation_space.seed(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.left = 5
        if self.case == "raises in reset":
            raise RuntimeError("no such scene")
        if self.case == "hangs in reset":
            time.sleep(HANG_S)
        if self.case == "reset without info":
            return self.observation()
        return self.observation(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self.left -= 1
        if self.case == "raises in step":
            raise RuntimeError("no such joint")
        if self.case == "hangs in step":
            time.sleep(HANG_S)
        if self.case == "sys.exit":
            sys.exit(3)
        if self.case == "prints":
            print("a step")
        over = self.case != "never ends" and self.left <= 0
        if self.case == "4-tuple":
            return self.observation(), 1.0, over, {}
        info: Any = {"odd": object(), 3: None, "success": [self.left == 0]} if self.case == "odd infos" else {}
        ended = over or self.case == "terminates at once"
        return self.observation(), REWARDS.get(self.case, 1.0), ended, False, info

    def observation(self) -> Any:
        if self.case == "observations outside the space":
            return np.full(3, 7.0, np.float32)
        if self.case == "obs 1e38":
            return np.full(3, 3e38, np.float32)
        return SEEN[self.case] if self.case in SEEN else self.observation_space.sample()

    def close(self) -> None:
        if self.case == "close() raises":
            raise RuntimeError("not closed")


ID = f"{__name__}:Zoo-v0"
gymnasium.register("Zoo-v0", Zoo)
