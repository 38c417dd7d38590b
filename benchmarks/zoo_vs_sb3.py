"""Entries of RL Zoo, imported and run here, against Stable-Baselines3 with the same entry: return and CPU-seconds.

    python benchmarks/zoo_vs_sb3.py --hyperparams rl-baselines3-zoo/hyperparams [--entry ppo/CartPole-v1] [--write]

`rlinf import sb3` converts each entry with fewer `n_timesteps`, the numbers of :data:`ENTRIES`; the peer is built from
the same entry as the Zoo's own program does. One thread; the seeds of a side run one after the other in a process of
their own, imports and construction are not counted. Returns are means of 20 greedy episodes after the last step, from
the same start states on both sides, with the statistics of the run where observations are normalised.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from records import Figure, add_output, over_seeds, save
from sim_vs_sb3 import _our_return, _peer_return, _step, _trainer

ENTRIES: dict[str, int] = {
    "ppo/CartPole-v1": 24_000,
    "ppo/Pendulum-v1": 16_384,
    "ppo/Acrobot-v1": 40_960,
    "a2c/CartPole-v1": 8_000,
    "a2c/Acrobot-v1": 24_000,
    "a2c/MountainCarContinuous-v0": 8_000,
    "dqn/CartPole-v1": 8_192,
    "sac/MountainCarContinuous-v0": 4_800,
    "td3/Pendulum-v1": 12_000,
    "ddpg/Pendulum-v1": 12_000,
}
SIDES = ("rlinf", "sb3")


def ours(folder: Path, entry: str, steps: int, seed: int) -> dict[str, float]:
    from rlinf_import.page import page
    from rlinf_import.reading import imported
    from rlinf_import.sheet import Options

    algorithm, environment = entry.split("/")
    with tempfile.TemporaryDirectory() as scratch:
        options = Options(environment=environment, algorithm=algorithm)
        sheet = imported("sb3", folder / f"{algorithm}.yml", [f"n_timesteps={steps}"], options)
        recipe = Path(scratch) / "entry"
        recipe.with_suffix(".yaml").write_text(page(sheet))
        trainer = _trainer(str(recipe), seed, scratch)
        began = time.process_time()
        done = 0.0
        for step in range(trainer.config.run.max_steps):
            done = _step(trainer, step)["rollout/env_steps_total"]
        spent = time.process_time() - began
        return {"cpu_s": spent, "steps": done, "return": _our_return(trainer)}


def peers(folder: Path, entry: str, steps: int, seed: int) -> dict[str, float]:
    import gymnasium
    import torch

    torch.set_num_threads(1)
    algorithm, environment = entry.split("/")
    given = dict(yaml.safe_load((folder / f"{algorithm}.yml").read_text())[environment])
    model = _model(algorithm, environment, given, seed)
    began = time.process_time()
    model.learn(steps)
    spent = time.process_time() - began
    env = gymnasium.make(environment)
    return {"cpu_s": spent, "steps": float(model.num_timesteps), "return": _peer_return(model, env)}


def _model(algorithm: str, environment: str, given: dict[str, Any], seed: int) -> Any:
    """Build the peer's model of an entry, as `rl_zoo3/exp_manager.py` does."""
    import numpy as np
    import stable_baselines3 as sb3
    from rlinf_import.python_calls import literal
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.noise import NormalActionNoise
    from stable_baselines3.common.vec_env import VecNormalize

    given.pop("n_timesteps")
    policy, envs = given.pop("policy"), given.pop("n_envs", 1)
    env: Any = make_vec_env(environment, envs, seed=seed)
    normalised = given.pop("normalize", False)
    if normalised:
        options = literal(normalised) if isinstance(normalised, str) else {}
        assert isinstance(options, dict)
        env = VecNormalize(env, gamma=given.get("gamma", 0.99), **options)
    if isinstance(given.get("policy_kwargs"), str):
        given["policy_kwargs"] = literal(given["policy_kwargs"])
    for name in ("learning_rate", "clip_range"):
        if isinstance(given.get(name), str):
            given[name] = _falling(float(given[name].removeprefix("lin_")))
    if given.pop("noise_type", None) == "normal":
        size = env.action_space.shape[0]
        given["action_noise"] = NormalActionNoise(np.zeros(size), given["noise_std"] * np.ones(size))
    given.pop("noise_std", None)
    return getattr(sb3, algorithm.upper())(policy, env, seed=seed, device="cpu", **given)


def _falling(start: float) -> Callable[[float], float]:
    return lambda left: left * start


def figures(entry: str, steps: int, side: str, rows: list[dict[str, float]]) -> list[Figure]:
    """Mean return and CPU-seconds over the seeds; intervals are their smallest and largest."""
    case, n = f"{entry}, {steps:,} steps", 20 * len(rows)
    return [
        over_seeds(case, f"{side}, {words}", [row[name] for row in rows], digits=1, n=n)
        for name, words in (("return", "return"), ("cpu_s", "CPU-seconds"))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hyperparams", type=Path, required=True, help="the Zoo's folder of that name")
    parser.add_argument("--entry", choices=sorted(ENTRIES), help="this one alone")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", choices=SIDES)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    add_output(parser, "zoo_vs_sb3")
    wanted = parser.parse_args()
    for entry in [wanted.entry] if wanted.entry else ENTRIES:
        for side in [wanted.only] if wanted.only else SIDES:
            if wanted.here:
                run = ours if side == "rlinf" else peers
                for seed in range(wanted.seeds):
                    print(json.dumps(run(wanted.hyperparams, entry, ENTRIES[entry], seed)), flush=True)
                continue
            command = [sys.executable, __file__, "--here", "--entry", entry, "--only", side]
            command += ["--hyperparams", str(wanted.hyperparams), "--seeds", str(wanted.seeds)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            print(entry, side, [{name: round(value, 1) for name, value in row.items()} for row in rows], flush=True)
            if wanted.write:
                words = "smallest to largest of the seeds"
                save(wanted.write, figures(entry, ENTRIES[entry], side, rows), intervals=words, keep_others=True)


if __name__ == "__main__":
    main()
