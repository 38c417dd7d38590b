"""Gymnasium's own environments trained by the recipes of ``config/sim/``: returns beside published ones.

    python benchmarks/sim_recipes.py [--recipes cartpole_ppo,...] [--seeds 0,1,2] [--folder FOLDER] [--write]

Every run is a process of its own: `rlinf train config/sim/NAME.yaml run.seed=SEED cluster.backend=local`, evaluated
greedily on start states of its own. CPU-seconds are those of the whole tree of processes. Runs that the folder already
holds are not made again, so a second call completes a table; ``--report`` makes none.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from recipes import T95
from train_once import train_once

from rlinf.config import load

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "sim_recipes.md"
# Recipe -> what others published for the environment: Stable-Baselines3's RL Zoo (mean +- spread over episodes of one
# agent, after so many steps) and CleanRL (over three seeds).
PUBLISHED = {
    "cartpole_ppo": "RL Zoo PPO 500 (100k); CleanRL PPO 490 ± 6 (500k)",
    "cartpole_grpo": "RL Zoo PPO 500 (100k); CleanRL PPO 490 ± 6 (500k)",
    "acrobot_ppo": "RL Zoo PPO -73.5 ± 18 (1M); CleanRL PPO -86 ± 1",
    "pendulum_sac": "RL Zoo SAC -157 ± 89 (20k)",
    "pendulum_ppo": "RL Zoo SAC -157 ± 89 (20k)",
    "lunarlander_ppo": "RL Zoo PPO 242 (1M)",
    "halfcheetah_ppo": "RL Zoo PPO 5,819 (1M)",
    "hopper_ppo": "none at hand",
}


@dataclass(frozen=True)
class Measured:
    """One run."""

    recipe: str
    env: str
    seed: int
    before: float
    """Mean return of the evaluation before the first step."""
    after: float
    """Mean return of the evaluation after the last step."""
    episodes: int
    """Of each evaluation."""
    env_steps: int
    cpu_seconds: float
    load: float
    """Running processes of the machine over the last minute, at the end; this run is one of them."""


def measure(recipe: str, seed: int, folder: Path) -> Measured:
    """Trains once, in a process of its own."""
    path = folder / f"{recipe}_{seed}"
    kept = path / "measured.json"
    if kept.exists():
        return Measured(**json.loads(kept.read_text()))
    file = ROOT / "config" / "sim" / f"{recipe}.yaml"
    done = train_once(file, path, seed)
    measured = Measured(
        recipe,
        load(file).env.id,
        seed,
        before=done.summary["initial_metrics"]["eval/return"],
        after=done.summary["metrics"]["eval/return"],
        episodes=int(done.summary["metrics"]["eval/return/n"]),
        env_steps=done.env_steps,
        cpu_seconds=done.cpu_seconds,
        load=os.getloadavg()[0],
    )
    kept.write_text(json.dumps(asdict(measured)))
    return measured


def table(runs: Sequence[Measured]) -> str:
    """A Markdown table, a line per recipe; intervals are Student's 95% over the means of the seeds."""
    lines = [
        "| recipe | environment | seeds | return before | after, mean of seeds | each seed | episodes a seed "
        "| env steps | CPU-s | load | published |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for recipe in dict.fromkeys(run.recipe for run in runs):
        rows = [run for run in runs if run.recipe == recipe]
        after = [row.after for row in rows]
        lines.append(
            f"| `{recipe}` | {rows[0].env} | {len(rows)} | {_mean([row.before for row in rows]):,.1f} "
            f"| {_mean(after):,.1f}{_spread(after)} | {', '.join(f'{value:,.1f}' for value in after)} "
            f"| {rows[0].episodes} | {_mean([row.env_steps for row in rows]):,.0f} "
            f"| {_span([row.cpu_seconds for row in rows])} | {_span([row.load for row in rows])} "
            f"| {PUBLISHED[recipe]} |"
        )
    return "\n".join(lines)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _spread(values: Sequence[float]) -> str:
    """Half of Student's 95% interval over seeds."""
    if len(values) < 2:
        return " (one seed)"
    return f" ± {T95[len(values)] * statistics.stdev(values) / len(values) ** 0.5:,.1f}"


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):,.0f}", f"{max(values):,.0f}"
    return low if low == high else f"{low} to {high}"


def write_section(runs: Sequence[Measured]) -> None:
    """The section of ``benchmarks/RESULTS.md`` about these recipes."""
    RESULTS.write_text(
        "## Recipes for gymnasium's environments\n\n"
        "`python benchmarks/sim_recipes.py --write`: each recipe as it is in `config/sim/`, its last evaluation\n"
        "(greedy, start states of its own). Published figures are other people's, with their numbers of steps in\n"
        "brackets; where a recipe runs for fewer, it says so by its steps. CPU-seconds are of the whole tree of\n"
        "processes on a machine with two cores and as many running processes as `load` says, which inflates them.\n\n"
        + table(runs)
        + "\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--recipes", default=",".join(PUBLISHED))
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "sim_recipes")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.relative_to(ROOT)}")
    parser.add_argument("--report", action="store_true", help="only tell what the folder holds")
    options = parser.parse_args()
    if not options.report:
        for seed in (int(text) for text in options.seeds.split(",")):
            for recipe in options.recipes.split(","):
                print(measure(recipe, seed, options.folder), flush=True)
    found = [Measured(**json.loads(path.read_text())) for path in options.folder.glob("*/measured.json")]
    runs = sorted(found, key=lambda run: (list(PUBLISHED).index(run.recipe), run.seed))
    print(table(runs))
    if options.write:
        write_section(runs)


if __name__ == "__main__":
    main()
