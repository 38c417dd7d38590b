"""Batch simulators in JAX, trained here and by Brax's own PPO: environment steps per CPU-second, and returns.

    python benchmarks/batch_simulators.py --seeds 3 [--task brax] [--write]  # oneloop-rl[gymnax], [brax], [playground]
    python benchmarks/batch_simulators.py --task playground --seeds 1 --iterations 20  # shorter than the recipe

Ours are recipes of `config/sim/`. The peer is `brax.training.agents.ppo`, which MuJoCo Playground trains with, too; it
has the networks, rates, batches, epochs, discounts and environment steps of the recipe. gymnax has no PPO of its own,
so that its pendulum is given to Brax's. Every run is a process of its own with one thread of XLA. Steps per CPU-second
leave out the first quarter of a run, in which JAX compiles; `CPU-seconds` have it. Returns are means of 16 greedy
episodes after the last step, from the same start states on both sides.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any

from records import Figure, add_output, save, spread
from sim_vs_sb3 import _starts, _step, _trainer

EPISODES = 16
QUARTERS = 4
SIDES = ("rlinf", "brax_ppo")
_ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


@dataclass(frozen=True)
class Task:
    """A recipe, and what of it the peer does not read."""

    recipe: str
    reward_scaling: float = 1.0
    """Of the peer; the recipe may divide by the running deviation of returns, which the peer cannot."""


TASKS = {
    "gymnax": Task("gymnax_pendulum_ppo", reward_scaling=0.1),
    "brax": Task("brax_inverted_pendulum_ppo"),
    "playground": Task("playground_cartpole_ppo"),
}


def ours(task: Task, seed: int, *settings: str) -> dict[str, float]:
    """Train the recipe."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(task.recipe, seed, folder, *settings)
        marks = [(0.0, time.process_time())]
        for step in range(trainer.config.run.max_steps):
            steps = _step(trainer, step)["rollout/env_steps_total"]
            if (step + 1) % (trainer.config.run.max_steps // QUARTERS) == 0:
                marks.append((steps, time.process_time()))
        records = trainer.graph.rollout.evaluate(EPISODES).records
        return {**_speeds(marks), "return": statistics.mean(record.total for record in records)}


def peers(task: Task, seed: int, *settings: str) -> dict[str, float]:
    """Train Brax's PPO on the environment of the recipe, with its settings."""
    import functools

    import jax
    from brax.training.agents.ppo import networks, train

    from rlinf.config import load
    from rlinf.rollouts.vec_env.make_env import make_native_env

    config = load(f"config/sim/{task.recipe}.yaml", settings)
    algorithm, optimizer = config.algorithm, config.learner.optimizer
    batch: Any = make_native_env(config.env, EPISODES).unwrapped
    hidden = tuple(config.policy.hidden_sizes)
    marks: list[tuple[float, float]] = []
    make_policy, weights, _ = train.train(
        environment=_brax_env(batch.functional),
        num_timesteps=config.run.max_steps * config.env.num_envs * config.rollout.num_steps,
        episode_length=batch.functional.max_episode_steps,
        num_envs=config.env.num_envs,
        unroll_length=config.rollout.num_steps,
        batch_size=config.env.num_envs // algorithm.num_minibatches,
        num_minibatches=algorithm.num_minibatches,
        num_updates_per_batch=algorithm.update_epochs,
        learning_rate=optimizer.lr,
        max_grad_norm=optimizer.grad_clip,
        discounting=algorithm.gamma,
        gae_lambda=algorithm.gae_lambda,
        clipping_epsilon=0.2,
        entropy_cost=0.0,
        reward_scaling=task.reward_scaling,
        network_factory=functools.partial(
            networks.make_ppo_networks,
            policy_hidden_layer_sizes=hidden,
            value_hidden_layer_sizes=hidden,
            activation=jax.numpy.tanh,
            distribution_type="normal",
            noise_std_type="log",
        ),
        num_evals=QUARTERS + 1,
        run_evals=False,
        seed=seed,
        policy_params_fn=lambda steps, *_: marks.append((float(steps), time.process_time())),
    )
    chosen = jax.jit(make_policy(weights, deterministic=True))
    seen, _ = batch.reset(seed=[start.start_seed % 2**31 for start in _starts(EPISODES)])
    totals, over = jax.numpy.zeros(EPISODES), jax.numpy.zeros(EPISODES, bool)
    while not over.all():
        actions, _ = chosen(seen, jax.random.key(0))
        low, high = batch.single_action_space.low, batch.single_action_space.high
        seen, rewards, terminated, truncated, _ = batch.step(jax.numpy.clip(_scaled(actions, low, high), low, high))
        totals, over = totals + rewards * ~over, over | terminated | truncated
    return {**_speeds(marks), "return": float(totals.mean())}


def _brax_env(functional: Any) -> Any:
    """Give an environment of `rlinf_envs.sim` Brax's interface; its actions are in [-1, 1]."""
    import jax
    from brax import envs

    low, high = functional.action_space.low, functional.action_space.high

    class AsBrax(envs.Env):
        observation_size = functional.observation_space.shape[0]
        action_size = functional.action_space.shape[0]
        backend = "jax"

        def reset(self, rng: Any) -> Any:
            rng, key = jax.random.split(rng)
            seen, state = functional.begin(key)
            zero = jax.numpy.zeros(())
            return envs.State(state, seen, zero, zero, info={"rng": rng})

        def step(self, state: Any, action: Any) -> Any:
            rng, key = jax.random.split(state.info["rng"])
            given = jax.numpy.clip(_scaled(action, low, high), low, high)
            seen, after, reward, done = functional.advance(key, state.pipeline_state, given)
            reward, done = (jax.numpy.asarray(one, float).reshape(()) for one in (reward, done))
            info = {**state.info, "rng": rng}
            return state.replace(pipeline_state=after, obs=seen, reward=reward, done=done, info=info)

    return AsBrax()


def _scaled(actions: Any, low: Any, high: Any) -> Any:
    return low + 0.5 * (actions + 1.0) * (high - low)


def _speeds(marks: list[tuple[float, float]]) -> dict[str, float]:
    (_, began), (first, compiled), (last, ended) = marks[0], marks[1], marks[-1]
    return {"steps": last, "steps_per_cpu_s": (last - first) / (ended - compiled), "cpu_s": ended - began}


def figures(task: Task, side: str, rows: list[dict[str, float]]) -> list[Figure]:
    """Median over the seeds of speed, CPU-seconds and return; intervals are their smallest and largest."""
    seeds = tuple(range(len(rows)))
    words = {"steps_per_cpu_s": "environment steps per CPU-second", "cpu_s": "CPU-seconds", "return": "return"}
    case = f"`{task.recipe}`, {round(rows[0]['steps']):,} steps, {side}"
    found = []
    for name, metric in words.items():
        middle, ends = spread([row[name] for row in rows])
        count = EPISODES * len(rows) if name == "return" else None
        found.append(Figure(case, metric, middle, interval=ends, n=count, seeds=seeds))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=sorted(TASKS), help="this one alone")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, help="of training, instead of the recipe's")
    parser.add_argument("--only", choices=SIDES)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    add_output(parser, "batch_simulators")
    wanted = parser.parse_args()
    settings = [] if wanted.iterations is None else [f"run.max_steps={wanted.iterations}"]
    if wanted.one is not None:
        run = ours if wanted.only == "rlinf" else peers
        print(json.dumps(run(TASKS[wanted.task], wanted.one, *settings)))
        return
    for name in [wanted.task] if wanted.task else TASKS:
        for side in [wanted.only] if wanted.only else SIDES:
            rows = []
            for seed in range(wanted.seeds):
                command = [sys.executable, __file__, "--task", name, "--only", side, "--one", str(seed)]
                command += [] if wanted.iterations is None else ["--iterations", str(wanted.iterations)]
                alone = {**os.environ, "XLA_FLAGS": _ONE_THREAD, "OMP_NUM_THREADS": "1"}
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=alone)
                rows.append(json.loads(done.stdout.strip().splitlines()[-1]))
                print(name, side, "seed", seed, {key: round(value, 2) for key, value in rows[-1].items()}, flush=True)
            if wanted.write:
                words = "smallest to largest of the seeds"
                save(wanted.write, figures(TASKS[name], side, rows), intervals=words, keep_others=True)


if __name__ == "__main__":
    main()
