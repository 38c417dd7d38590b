"""Off-policy algorithms against Stable-Baselines3 and sb3-contrib: the return reached and CPU-seconds, on one core.

    python benchmarks/off_policy_vs_sb3.py --task td3 --seeds 3 [--write]  # Pendulum
    python benchmarks/off_policy_vs_sb3.py --task dqn --seeds 3            # CartPole
    python benchmarks/off_policy_vs_sb3.py --task crossq --seeds 3         # Pendulum; needs sb3-contrib
    python benchmarks/off_policy_vs_sb3.py --task discrete_sac --seeds 3   # CartPole; alone: the peers have none
    python benchmarks/off_policy_vs_sb3.py --task memory_sac --seeds 3     # Pendulum without its velocity

Every run is a process of its own; imports and construction are not counted on either side. Ours are config/sim/*.yaml;
the peer has the same networks, rates, updates per environment step and number of steps. Returns are means of 20 greedy
episodes after the last step, from the same start states on both sides. The peers have no recurrent SAC: `memory_sac` is
against plain SAC on the same observations.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from records import Figure, add_output, over_seeds, save
from sim_vs_sb3 import _our_return, _peer_return, _train_to, _trainer


@dataclass(frozen=True)
class Task:
    """One algorithm on one environment."""

    recipe: str
    env: str
    steps: int
    peer: Callable[[Any, int], Any] | None = None
    """(environments, seed) -> the peer's model, which makes one update for each step of all environments."""
    wrapped: Callable[[Any], Any] | None = None
    """What the recipe's wrappers do, for the peer's environments."""
    peer_envs: int = 1


def _td3(env: Any, seed: int) -> Any:
    import numpy as np
    from stable_baselines3 import TD3
    from stable_baselines3.common.noise import NormalActionNoise

    noise = NormalActionNoise(np.zeros(1), 0.1 * np.ones(1))
    shape = {"net_arch": [128, 128]}
    return TD3(
        "MlpPolicy",
        env,
        gamma=0.98,
        learning_starts=500,
        action_noise=noise,
        policy_kwargs=shape,
        seed=seed,
        device="cpu",
    )


def _dqn(env: Any, seed: int) -> Any:
    from stable_baselines3 import DQN

    return DQN(
        "MlpPolicy",
        env,
        learning_rate=2.3e-3,
        batch_size=64,
        buffer_size=100_000,
        learning_starts=1000,
        target_update_interval=10,
        train_freq=256,
        gradient_steps=128,
        exploration_fraction=0.16,
        exploration_final_eps=0.04,
        policy_kwargs={"net_arch": [256, 256]},
        seed=seed,
        device="cpu",
    )


def _crossq(env: Any, seed: int) -> Any:
    from sb3_contrib import CrossQ

    shape = {"net_arch": [128, 128]}
    return CrossQ("MlpPolicy", env, gamma=0.98, learning_starts=250, policy_kwargs=shape, seed=seed, device="cpu")


def _memoryless_sac(env: Any, seed: int) -> Any:
    from stable_baselines3 import SAC

    shape = {"net_arch": [64, 64]}
    return SAC(
        "MlpPolicy",
        env,
        learning_rate=1e-3,
        batch_size=512,
        buffer_size=100_000,
        learning_starts=400,
        policy_kwargs=shape,
        seed=seed,
        device="cpu",
    )


def _without_velocity(env: Any) -> Any:
    from rlinf.rollouts.wrappers import KeepEntries

    return KeepEntries(env, entries=[0, 1])


TASKS = {
    "td3": Task("pendulum_td3", "Pendulum-v1", 8_000, _td3),
    "dqn": Task("cartpole_dqn", "CartPole-v1", 50_000, _dqn),
    "crossq": Task("pendulum_crossq", "Pendulum-v1", 4_000, _crossq),
    "discrete_sac": Task("cartpole_discrete_sac", "CartPole-v1", 20_000),
    "memory_sac": Task(
        "pendulum_memory_sac", "Pendulum-v1", 24_000, _memoryless_sac, wrapped=_without_velocity, peer_envs=4
    ),
}


def ours(task: Task, seed: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(task.recipe, seed, folder)
        spent, steps = _train_to(trainer, task.steps)
        return {"cpu_s": spent, "steps": steps, "return": _our_return(trainer)}


def peers(task: Task, seed: int) -> dict[str, float]:
    import gymnasium
    import torch
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)
    assert task.peer is not None
    model = task.peer(make_vec_env(task.env, task.peer_envs, wrapper_class=task.wrapped), seed)
    began = time.process_time()
    model.learn(task.steps)
    spent = time.process_time() - began
    env = gymnasium.make(task.env)
    env = env if task.wrapped is None else task.wrapped(env)
    return {"cpu_s": spent, "steps": float(task.steps), "return": _peer_return(model, env)}


def figures(task: Task, side: str, rows: list[dict[str, float]]) -> list[Figure]:
    """Mean over the seeds of return and CPU-seconds; intervals are their smallest and largest."""
    env = f"{task.env} without velocity" if task.wrapped else task.env
    case = f"`{task.recipe}`, {env}, {task.steps:,} steps"
    return [
        over_seeds(case, f"{side}, {words}", [row[name] for row in rows], digits=1, n=n)
        for name, words, n in (("return", "return", 20 * len(rows)), ("cpu_s", "CPU-seconds", None))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=sorted(TASKS), required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", choices=("rlinf", "peer"))
    parser.add_argument("--steps", type=int, help="environment steps of a run (default: the task's)")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    add_output(parser, "off_policy_vs_sb3")
    wanted = parser.parse_args()
    task = TASKS[wanted.task]
    if wanted.steps is not None:
        task = replace(task, steps=wanted.steps)
    if wanted.one is not None:
        print(json.dumps((ours if wanted.only == "rlinf" else peers)(task, wanted.one)))
        return
    sides = [side for side in ("rlinf", "peer") if side == "rlinf" or task.peer is not None]
    for side in [wanted.only] if wanted.only else sides:
        rows = []
        for seed in range(wanted.seeds):
            command = [sys.executable, __file__, "--task", wanted.task, "--only", side, "--one", str(seed)]
            command += [] if wanted.steps is None else ["--steps", str(wanted.steps)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            rows.append(json.loads(done.stdout.strip().splitlines()[-1]))
            print(side, "seed", seed, {name: round(value, 2) for name, value in rows[-1].items()}, flush=True)
        means = {name: round(statistics.mean(row[name] for row in rows), 2) for name in rows[0]}
        print(f"{side}: mean of {len(rows)}: {means}", flush=True)
        if wanted.write:
            words = "smallest to largest of the seeds"
            save(wanted.write, figures(task, side, rows), intervals=words, keep_others=True)


if __name__ == "__main__":
    main()
