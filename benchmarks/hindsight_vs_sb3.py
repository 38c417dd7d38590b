"""Hindsight replay against Stable-Baselines3's HerReplayBuffer: success and CPU-seconds, one thread each.

    python benchmarks/hindsight_vs_sb3.py --task fetch --seeds 3 [--write]  # FetchReach; needs oneloop-rl[robotics]
    python benchmarks/hindsight_vs_sb3.py --task panda --seeds 3            # PandaReach; needs panda-gym
    python benchmarks/hindsight_vs_sb3.py --task push --seeds 3             # FetchPush; panda_push: PandaPush
    python benchmarks/hindsight_vs_sb3.py --task bits --seeds 3             # 12 bits to flip, DQN; no simulator

Every run is a process of its own; imports and construction are not counted on either side. `fetch` and `panda` are the
entries of RL Zoo's hyperparams/tqc.yml on both sides, for `--steps` steps; the Zoo normalises rewards there, too, which
ours do not. `push` and `panda_push` have the same small networks, far from the Zoo's million steps. `without` is ours
with algorithm.hindsight: none. Success is that of 50 greedy episodes from the same start states, anywhere in an
episode. `sb3_unscaled` is the peer without normalised rewards.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any

from records import Figure, add_output, over_seeds, save
from sim_vs_sb3 import _played, _starts, _train_to, _trainer

EPISODES = 50


@dataclass(frozen=True)
class Task:
    """One environment, and how both sides make it."""

    recipe: str
    env: str
    steps: int
    settings: tuple[str, ...] = ()
    """Of the recipe."""


_LONGER = "run.max_steps=1000"
TASKS = {
    "fetch": Task("fetch_reach_her", "FetchReach-v4", 4_000),
    "panda": Task("fetch_reach_her", "PandaReach-v3", 4_000, ("env.id=panda_gym:PandaReach-v3",)),
    "push": Task("fetch_reach_her", "FetchPush-v4", 10_000, ("env.id=gymnasium_robotics:FetchPush-v4", _LONGER)),
    "panda_push": Task("fetch_reach_her", "PandaPush-v3", 10_000, ("env.id=panda_gym:PandaPush-v3", _LONGER)),
    "bits": Task("bit_flip_dqn", "rlinf/BitFlip-v0", 12_000),
}
SIDES = ("rlinf", "sb3", "sb3_unscaled", "without")


def ours(task: Task, seed: int, *settings: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(task.recipe, seed, folder, *task.settings, *settings)
        spent, _ = _train_to(trainer, task.steps)
        records = trainer.graph.rollout.evaluate(EPISODES).records
        reached = statistics.mean(record.success_once for record in records)
        return {"cpu_s": spent, "success": reached, "return": statistics.mean(record.total for record in records)}


def peers(task: Task, seed: int, *, norm_reward: bool = True) -> dict[str, float]:
    import gymnasium
    import torch
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    if task.env.startswith("Fetch"):
        import gymnasium_robotics

        gymnasium.register_envs(gymnasium_robotics)
    elif task.env.startswith("Panda"):
        import panda_gym  # noqa: F401
    else:
        import rlinf_envs  # noqa: F401
    settings = {"bits": 12} if task.recipe == "bit_flip_dqn" else {}
    env: Any = make_vec_env(task.env, 4 if settings else 1, env_kwargs=settings, seed=seed)
    if not settings:
        env = VecNormalize(env, norm_reward=norm_reward, gamma=0.95)
    model = _bits_model(env, seed) if settings else _reach_model(env, seed)
    began = time.process_time()
    model.learn(task.steps)
    spent = time.process_time() - began
    single = gymnasium.make(task.env, **settings)
    played = [_played(model, single, start.start_seed) for start in _starts(EPISODES)]
    returns, reached = (statistics.mean(map(float, column)) for column in zip(*played, strict=True))
    return {"cpu_s": spent, "success": reached, "return": returns}


def _reach_model(env: Any, seed: int) -> Any:
    from sb3_contrib import TQC
    from stable_baselines3 import HerReplayBuffer

    return TQC(
        "MultiInputPolicy",
        env,
        learning_rate=1e-3,
        gamma=0.95,
        batch_size=256,
        learning_starts=1000,
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs={"goal_selection_strategy": "future", "n_sampled_goal": 4},
        policy_kwargs={"net_arch": [64, 64], "n_critics": 1},
        seed=seed,
        device="cpu",
    )


def _bits_model(env: Any, seed: int) -> Any:
    from stable_baselines3 import DQN, HerReplayBuffer

    return DQN(
        "MultiInputPolicy",
        env,
        learning_rate=1e-3,
        gamma=0.95,
        batch_size=128,
        buffer_size=100_000,
        learning_starts=500,
        train_freq=12,
        gradient_steps=24,
        target_update_interval=1,
        tau=0.01,
        exploration_fraction=8_000 / 12_000,
        exploration_final_eps=0.1,
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs={"goal_selection_strategy": "future", "n_sampled_goal": 4},
        policy_kwargs={"net_arch": [128, 128]},
        seed=seed,
        device="cpu",
    )


def _run(task: Task, side: str, seed: int) -> dict[str, float]:
    if side.startswith("sb3"):
        return peers(task, seed, norm_reward=side == "sb3")
    return ours(task, seed, *(["algorithm.hindsight=none"] if side == "without" else []))


def figures(task: Task, side: str, rows: list[dict[str, float]]) -> list[Figure]:
    """Mean over the seeds of success and CPU-seconds; intervals are their smallest and largest."""
    case = f"{task.env}, {task.steps:,} steps"
    return [
        over_seeds(case, f"{side}, {words}", [row[name] for row in rows], digits=2, n=n)
        for name, words, n in (("success", "success", EPISODES * len(rows)), ("cpu_s", "CPU-seconds", None))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=sorted(TASKS), required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", choices=SIDES)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    add_output(parser, "hindsight_vs_sb3")
    wanted = parser.parse_args()
    task = TASKS[wanted.task]
    if wanted.one is not None:
        print(json.dumps(_run(task, wanted.only, wanted.one)))
        return
    for side in [wanted.only] if wanted.only else SIDES:
        rows = []
        for seed in range(wanted.seeds):
            command = [sys.executable, __file__, "--task", wanted.task, "--only", side, "--one", str(seed)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            rows.append(json.loads(done.stdout.strip().splitlines()[-1]))
            print(side, "seed", seed, {name: round(value, 2) for name, value in rows[-1].items()}, flush=True)
        if wanted.write:
            words = "smallest to largest of the seeds"
            save(wanted.write, figures(task, side, rows), intervals=words, keep_others=True)


if __name__ == "__main__":
    main()
