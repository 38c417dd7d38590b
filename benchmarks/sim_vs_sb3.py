"""Simulators against Stable-Baselines3: CPU-seconds to a goal, one thread each, runs interleaved.

    python benchmarks/sim_vs_sb3.py --seeds 5 [--write]    # CartPole: PPO until the last 100 episodes average 475
    python benchmarks/sim_vs_sb3.py --task pendulum        # Pendulum: SAC steps per CPU-second, and the return reached
    python benchmarks/sim_vs_sb3.py --task halfcheetah     # HalfCheetah: PPO steps per CPU-second (oneloop-rl[mujoco])
    python benchmarks/sim_vs_sb3.py --task throughput      # CartPoles stepped and acted on, 8 and 1,024 side by side

Every run is a process of its own; imports and construction are not counted on either side. SB3 has the tuned
hyper-parameters of its Zoo, ours are those of config/sim/NAME.yaml. Pendulum: both make one update of 256 transitions
per environment step; SB3's networks are 256 wide, our recipe's 128. `rlinf_wide` is ours with SB3's networks,
`sb3_small` SB3 with ours. HalfCheetah: both recipes are for a million steps, of which the first are timed; what they
come to is in sim_recipes.py's table, next to the Zoo's own. `sb3_small` there is SB3 with our networks, minibatches,
epochs and environments. `return` is the mean of 20 greedy episodes after the last step, from the same start states on
both sides; it is not part of the CPU-seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from records import Figure, add_output, save, spread

RECIPES = Path(__file__).parents[1] / "config" / "sim"
GOAL = 475.0
PENDULUM_STEPS = 8_000
CHEETAH_STEPS = 32_768
EPISODES = 20
"""Of the evaluation after the last step."""
OUR_PENDULUM_SIZES, SB3_PENDULUM_SIZES = (128, 128), (256, 256)
_QUIET = ["cluster.backend=local", "logging.progress=none", "logging.tensorboard=false", "evaluation.size=0"]


def sb3_cartpole(seed: int) -> dict[str, float]:
    import gymnasium
    import numpy as np
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)

    class StopAtGoal(BaseCallback):
        def _on_step(self) -> bool:
            episodes = self.model.ep_info_buffer
            return len(episodes) < 100 or np.mean([episode["r"] for episode in episodes]) < GOAL

    model = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=8, seed=seed),
        n_steps=32,
        batch_size=256,
        gae_lambda=0.8,
        gamma=0.98,
        n_epochs=20,
        learning_rate=lambda left: 1e-3 * left,
        clip_range=lambda left: 0.2 * left,
        seed=seed,
        device="cpu",
    )
    began = time.process_time()
    model.learn(100_000, callback=StopAtGoal())
    spent = time.process_time() - began
    mean = float(np.mean([episode["r"] for episode in model.ep_info_buffer]))
    reached = _peer_return(model, gymnasium.make("CartPole-v1"))
    return {"cpu_s": spent, "steps": model.num_timesteps, "last_100": mean, "return": reached}


def ours_cartpole(seed: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        trainer, spent, steps, mean = _trainer("cartpole_ppo", seed, folder), 0.0, 0.0, 0.0
        began = time.process_time()
        for step in range(trainer.config.run.max_steps):
            metrics = _step(trainer, step)
            mean = metrics.get("rollout/return_last_100", 0.0)
            steps = metrics["rollout/env_steps_total"]
            if mean >= GOAL:
                break
        spent = time.process_time() - began
        return {"cpu_s": spent, "steps": steps, "last_100": mean, "return": _our_return(trainer)}


def sb3_pendulum(seed: int, hidden_sizes: tuple[int, ...] = SB3_PENDULUM_SIZES) -> dict[str, float]:
    import gymnasium
    import torch
    from stable_baselines3 import SAC

    torch.set_num_threads(1)
    shape = {"net_arch": list(hidden_sizes)}
    env = gymnasium.make("Pendulum-v1")
    model = SAC("MlpPolicy", env, learning_rate=1e-3, policy_kwargs=shape, seed=seed, device="cpu")
    began = time.process_time()
    model.learn(PENDULUM_STEPS)
    spent = time.process_time() - began
    reached = _peer_return(model, gymnasium.make("Pendulum-v1"))
    return {"cpu_s": spent, "steps_per_cpu_s": PENDULUM_STEPS / spent, "return": reached}


def sb3_pendulum_small(seed: int) -> dict[str, float]:
    return sb3_pendulum(seed, OUR_PENDULUM_SIZES)


def ours_pendulum(seed: int, hidden_sizes: tuple[int, ...] = OUR_PENDULUM_SIZES) -> dict[str, float]:
    width = f"policy.hidden_sizes={list(hidden_sizes)}"
    with tempfile.TemporaryDirectory() as folder:
        trainer, steps, step = _trainer("pendulum_sac", seed, folder, width), 0.0, 0
        began = time.process_time()
        while steps < PENDULUM_STEPS:
            steps = _step(trainer, step)["rollout/env_steps_total"]
            step += 1
        spent = time.process_time() - began
        return {"cpu_s": spent, "steps_per_cpu_s": steps / spent, "return": _our_return(trainer)}


def ours_pendulum_wide(seed: int) -> dict[str, float]:
    return ours_pendulum(seed, SB3_PENDULUM_SIZES)


def sb3_halfcheetah(seed: int, *, as_ours: bool = False) -> dict[str, float]:
    """``as_ours``: with what our recipe has instead of the Zoo's settings that decide what a step costs."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    envs, steps, rows, epochs, width = (8, 256, 128, 10, 64) if as_ours else (1, 512, 64, 20, 256)
    env = VecNormalize(make_vec_env("HalfCheetah-v5", n_envs=envs, seed=seed), gamma=0.98)
    shape = {"log_std_init": -2, "ortho_init": False, "activation_fn": torch.nn.ReLU, "net_arch": [width, width]}
    model = PPO(
        "MlpPolicy",
        env,
        n_steps=steps,
        batch_size=rows,
        n_epochs=epochs,
        gae_lambda=0.92,
        gamma=0.98,
        learning_rate=2.0633e-5,
        clip_range=0.1,
        ent_coef=0.000401762,
        vf_coef=0.58096,
        max_grad_norm=0.8,
        policy_kwargs=shape,
        seed=seed,
        device="cpu",
    )
    began = time.process_time()
    model.learn(CHEETAH_STEPS)
    spent = time.process_time() - began
    return {"cpu_s": spent, "steps": model.num_timesteps, "cpu_s_of_a_million": 1e6 * spent / model.num_timesteps}


def sb3_halfcheetah_as_ours(seed: int) -> dict[str, float]:
    return sb3_halfcheetah(seed, as_ours=True)


def ours_halfcheetah(seed: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        trainer, steps, step = _trainer("halfcheetah_ppo", seed, folder), 0.0, 0
        began = time.process_time()
        while steps < CHEETAH_STEPS:
            steps = _step(trainer, step)["rollout/env_steps_total"]
            step += 1
        spent = time.process_time() - began
        return {"cpu_s": spent, "steps": steps, "cpu_s_of_a_million": 1e6 * spent / steps}


def throughput(_seed: int) -> dict[str, float]:
    """Environment steps per CPU-second, acting included."""
    from functools import partial

    import torch

    from rlinf.config import load
    from rlinf.rollouts.simulator.env_worker import EnvWorker
    from rlinf.train.assemble.simulator import make_policy

    torch.set_num_threads(1)
    config = load(RECIPES / "cartpole_ppo.yaml", [])
    found = {}
    for count, kind in ((8, "sync"), (1024, "native")):
        here = load(RECIPES / "cartpole_ppo.yaml", [f"env.vectorization={kind}", "rollout.num_steps=128"])
        worker = EnvWorker(here.collection, range(count), partial(make_policy, config))
        worker.collect(0)
        began, steps, step = time.process_time(), 0, 0
        while time.process_time() - began < 3.0:
            step += 1
            steps += worker.collect(step).env_steps
        found[f"{count}_{kind}"] = steps / (time.process_time() - began)
    return {**found, "ratio": found["1024_native"] / found["8_sync"]}


def _trainer(recipe: str, seed: int, folder: str, *settings: str) -> Any:
    """Everything that `rlinf train` puts together, in this process, without evaluation."""
    from rlinf.cluster import connect
    from rlinf.config import load
    from rlinf.train.assemble.setup import ResolvedRun
    from rlinf.train.loop import Trainer
    from rlinf.train.run import build_graph
    from rlinf.train.run_dir import RunDirectory
    from rlinf.train.tracking.progress import ProgressDisplay

    config = load(RECIPES / f"{recipe}.yaml", [*_QUIET, f"run.seed={seed}", f"run.dir={folder}/run", *settings])
    cluster = connect(config.cluster)
    directory = RunDirectory.open(config)
    graph = build_graph(ResolvedRun.of(config), cluster, directory.path)
    display = ProgressDisplay(name="", mode="none", total=1, done=0)
    trainer = Trainer(config, graph, directory, display)
    graph.send_weights(0)
    return trainer


def _step(trainer: Any, step: int) -> dict[str, float]:
    """One pass of the training loop."""
    batch, metrics = trainer.collect(step)
    batch, _ = trainer.prepare(batch)
    trainer.update(batch, step)
    trainer.graph.hand_over(step + 1)
    return metrics


def _our_return(trainer: Any) -> float:
    """The mean return of greedy episodes with the weights of now."""
    records = trainer.graph.rollout.evaluate(EPISODES).records
    return statistics.mean(record.total for record in records)


def _peer_return(model: Any, env: Any) -> float:
    """The same of the peer's model, in a plain environment and from the same start states as ours."""
    return statistics.mean(_played(model, env, start.start_seed)[0] for start in _starts())


def _starts(episodes: int = EPISODES) -> list[Any]:
    """The start states that ours are evaluated on: an easy one is worth a hundred points of Pendulum's return."""
    from rlinf.rollouts.simulator.evaluation_starts import evaluation_tasks
    from rlinf.rollouts.vec_env.mixture import ONE_TASK
    from rlinf.schema import EvaluationConfig

    return evaluation_tasks(EvaluationConfig().seed, ONE_TASK, episodes)


def _played(model: Any, env: Any, start_seed: int) -> tuple[float, bool]:
    """Return of one greedy episode of the peer's, and whether it succeeded at any step."""
    normaliser = model.get_vec_normalize_env()
    (observation, _), total, reached, over = env.reset(seed=start_seed % 2**31), 0.0, False, False
    while not over:
        seen = observation if normaliser is None else normaliser.normalize_obs(observation)
        action, _ = model.predict(seen, deterministic=True)
        observation, reward, terminated, truncated, info = env.step(action)
        total, over = total + float(reward), terminated or truncated
        reached = reached or bool(info.get("is_success", info.get("success", False)))
    return total, reached


def _train_to(trainer: Any, env_steps: int) -> tuple[float, float]:
    """Train until the environments have made ``env_steps``; return the CPU-seconds and the steps that they made."""
    steps, step, began = 0.0, 0, time.process_time()
    while steps < env_steps:
        steps = _step(trainer, step)["rollout/env_steps_total"]
        step += 1
    return time.process_time() - began, steps


RUNS = {
    "cartpole": {"rlinf": ours_cartpole, "sb3": sb3_cartpole},
    "pendulum": {
        "rlinf": ours_pendulum,
        "rlinf_wide": ours_pendulum_wide,
        "sb3": sb3_pendulum,
        "sb3_small": sb3_pendulum_small,
    },
    "halfcheetah": {"rlinf": ours_halfcheetah, "sb3": sb3_halfcheetah, "sb3_small": sb3_halfcheetah_as_ours},
    "throughput": {"rlinf": throughput},
}


def figures(task: str, first: int, rows: dict[str, list[dict[str, float]]]) -> list[Figure]:
    """The median over seeds of every number of each side."""
    found = []
    for who, seeds in rows.items():
        numbers = tuple(range(first, first + len(seeds)))
        for name in seeds[0]:
            middle, interval = spread([row[name] for row in seeds])
            found.append(Figure(task, f"{who}, {name}", middle, interval=interval, n=len(seeds), seeds=numbers))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=sorted(RUNS), default="cartpole")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed; recipes were chosen on small ones")
    parser.add_argument("--only", choices=sorted(RUNS["pendulum"]))
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    add_output(parser, "sim_vs_sb3")
    wanted = parser.parse_args()
    if wanted.one is not None:
        print(json.dumps(RUNS[wanted.task][wanted.only](wanted.one)))
        return
    rows: dict[str, list[dict[str, float]]] = {}
    for seed in range(wanted.first, wanted.first + wanted.seeds):
        for who in RUNS[wanted.task]:
            if wanted.only in (None, who):
                command = [sys.executable, __file__, "--task", wanted.task, "--only", who, "--one", str(seed)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                row = json.loads(done.stdout.strip().splitlines()[-1])
                rows.setdefault(who, []).append(row)
                print(who, "seed", seed, {name: round(value, 2) for name, value in row.items()}, flush=True)
    for who, found in rows.items():
        means = {name: round(statistics.mean(row[name] for row in found), 2) for name in found[0]}
        print(f"{who}: mean of {len(found)}: {means}")
    if wanted.write:
        save(
            wanted.write,
            figures(wanted.task, wanted.first, rows),
            intervals="smallest to largest of the seeds",
            keep_others=True,
        )


if __name__ == "__main__":
    main()
