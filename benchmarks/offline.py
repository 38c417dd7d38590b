"""Offline reinforcement learning against behaviour cloning, on the same recorded episodes of mixed quality.

    python benchmarks/offline.py [--seeds 3] [--write]

The demonstrator of `config/sim/pendulum_iql.yaml` is recorded once; `imitation` is the same run with `awr_beta: 0`, so
with the same network, data and updates. Returns are means of 32 greedy episodes; one thread, one process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from records import Figure, add_output, save

from rlinf.cli import main as rlinf
from rlinf.config import load
from rlinf.datasets.robot_data.reading import read_dataset
from rlinf.train.run import run

RECIPE = Path(__file__).parents[1] / "config" / "sim" / "pendulum_iql.yaml"
EPISODES = 150
SIDES: dict[str, tuple[str, ...]] = {"iql": (), "imitation": ("algorithm.awr_beta=0",)}
_QUIET = ("cluster.backend=local", "logging.progress=none", "logging.tensorboard=false", "evaluation.every=0")


def record(folder: Path) -> list[float]:
    """Record the data set into ``folder``; return the return of each of its episodes."""
    expert = ["--expert", "rlinf_envs.sim.pendulum:mixed_expert", "--keep-failures", "--to-the-end"]
    rlinf(["record", str(RECIPE), *expert, "--episodes", str(EPISODES), "--out", str(folder)])
    found = read_dataset(str(folder))
    parts = np.split(found.columns["next.reward"], np.cumsum(found.lengths)[:-1])
    return [float(part.sum()) for part in parts]


def train(data: Path, folder: Path, seed: int, settings: tuple[str, ...]) -> tuple[float, float]:
    """Return (mean return of the last evaluation, CPU-seconds)."""
    given = [f"algorithm.prior_data={data}", f"run.dir={folder}", f"run.seed={seed}"]
    began = time.process_time()
    run(load(RECIPE, [*given, *_QUIET, *settings]), report=False)
    reached = json.loads((folder / "summary.json").read_text())["metrics"]["eval/return"]
    return reached, time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    add_output(parser, "offline")
    wanted = parser.parse_args()
    seeds = tuple(range(wanted.seeds))
    with tempfile.TemporaryDirectory() as scratch:
        returns = record(Path(scratch) / "data")
        ends = round(min(returns), 1), round(max(returns), 1)
        found = [
            Figure("episodes of the data", "return", round(statistics.mean(returns), 1), interval=ends, n=EPISODES)
        ]
        print("data", statistics.mean(returns), ends, flush=True)
        for side, settings in SIDES.items():
            rows = [train(Path(scratch) / "data", Path(scratch) / f"{side}_{seed}", seed, settings) for seed in seeds]
            print(side, rows, flush=True)
            for name, values in zip(("return", "CPU-seconds"), zip(*rows, strict=True), strict=True):
                short = [round(value, 1) for value in values]
                mean, ends = round(statistics.mean(short), 1), (min(short), max(short))
                found.append(
                    Figure(f"`pendulum_iql`, {side}", name, mean, interval=ends, n=32 * len(rows), seeds=seeds)
                )
    if wanted.write:
        save(wanted.write, found, intervals="smallest to largest of the seeds, or of the episodes of the data")


if __name__ == "__main__":
    main()
