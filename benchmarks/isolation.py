"""What `env.isolation: process` costs: a vector step in this process against one behind a socket.

    python benchmarks/isolation.py [--steps 500] [--rounds 5] [--python PYTHON] [--write]

CPU time is that of both processes, per vector step; wall-clock time is the median over steps, which other work on the
machine disturbs least.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces
from records import Figure, add_output, save, spread

from rlinf.rollouts.vec_env.vectorize import make_vec_env
from rlinf.schema import EnvConfig

_CASES = (("CartPole-v1", 8), ("CartPole-v1", 64), ("isolation:Picture-v0", 8))


class Picture(gymnasium.Env):
    """An image of 84 x 84 pixels that costs nothing to draw: what is left is its transport."""

    observation_space = spaces.Box(0, 255, (84, 84, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.image = np.arange(84 * 84 * 3, dtype=np.uint8).reshape(84, 84, 3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[np.ndarray, dict[str, object]]:
        super().reset(seed=seed)
        return self.image, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
        return self.image, 0.0, False, False, {}


if "Picture-v0" not in gymnasium.registry:
    gymnasium.register("Picture-v0", entry_point=Picture)


@dataclass(frozen=True)
class Cost:
    """Of one vector step, in microseconds."""

    wall: float
    cpu: float


def measure(options: EnvConfig, num_envs: int, steps: int) -> Cost:
    vec_env = make_vec_env(options, num_envs)
    everyone = list(range(num_envs))
    actions = np.random.default_rng(0).integers(0, 2, (steps, num_envs))
    vec_env.reset(everyone, everyone)
    walls, before = [], cpu_seconds()
    for action in actions:
        began = time.perf_counter()
        result = vec_env.step(everyone, action)
        walls.append(time.perf_counter() - began)
        over = np.nonzero(result.terminated | result.truncated)[0].tolist()
        if over:
            vec_env.reset(over, over)
    spent = cpu_seconds() - before
    vec_env.close()
    return Cost(statistics.median(walls) * 1e6, spent / steps * 1e6)


def cpu_seconds() -> float:
    """Of this process and of the environments' process that it has started."""
    ticks = 0
    for line in (Path("/proc/self/task") / str(os.getpid()) / "children").read_text().split():
        fields = (Path("/proc") / line / "stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def figures(python: str | None, steps: int, rounds: int) -> list[Figure]:
    """Return median and range of the rounds, with both kinds of isolation."""
    found = []
    for env_id, num_envs in _CASES:
        name = f"{env_id.replace('isolation:Picture-v0', '84 x 84 x 3 image')}, {num_envs}"
        kinds = {
            "in process": EnvConfig(env_id, vectorization="sync"),
            "isolated": EnvConfig(env_id, isolation="process", python=python),
        }
        for kind, options in kinds.items():
            costs = [measure(options, num_envs, steps) for _ in range(rounds)]
            for metric, name_of in (("CPU time", "cpu"), ("median step", "wall")):
                value, interval = spread([getattr(cost, name_of) for cost in costs])
                found.append(Figure(name, f"{kind}, {metric}", value, "us", interval, n=steps * rounds))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500, help="of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", help="the other interpreter (default: this one)")
    add_output(parser, "isolation")
    options = parser.parse_args(arguments)
    target = options.write and options.write.absolute()
    os.chdir(Path(__file__).parent)  # the other process finds this module here
    found = figures(options.python, options.steps, options.rounds)
    print(*found, sep="\n")
    if target:
        save(target, found, intervals="smallest to largest of the rounds")


if __name__ == "__main__":
    main()
