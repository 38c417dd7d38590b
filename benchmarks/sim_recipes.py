"""Gymnasium's own environments trained by the recipes of ``config/sim/``: returns against published ones.

    python benchmarks/sim_recipes.py [--recipes cartpole_ppo,...] [--seeds 0,1,2] [--folder FOLDER] [--write]

Evaluated greedily, on start states of its own. Runs that the folder holds are not made again; ``--report`` makes none.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from study import Measured, Study, by_recipe, mean, span
from train_once import Trained

from rlinf.train.evaluation.intervals import mean_interval

# Recipe -> what others published for the environment: Stable-Baselines3's RL Zoo (mean +- spread over the episodes of
# one agent, at the same number of steps; MuJoCo environments in version 3) and CleanRL (over three seeds; MuJoCo
# environments in version 2 or 4).
PUBLISHED = {
    "cartpole_ppo": "RL Zoo PPO 500 (100k); CleanRL PPO 490 ± 6 (500k)",
    "cartpole_grpo": "RL Zoo PPO 500 (100k); CleanRL PPO 490 ± 6 (500k)",
    "acrobot_ppo": "RL Zoo PPO -73.5 ± 18 (1M); CleanRL PPO -86 ± 1",
    "pendulum_sac": "RL Zoo SAC -157 ± 89 (20k)",
    "pendulum_ppo": "RL Zoo PPO -172 ± 104 (100k)",
    "lunarlander_ppo": "RL Zoo PPO 242 ± 32 (1M)",
    "halfcheetah_ppo": "RL Zoo PPO 5,819 ± 664 (1M); CleanRL PPO 1,443 ± 46 (1M)",
    "halfcheetah_sac": "RL Zoo SAC 9,535 ± 100 (1M); CleanRL SAC 9,635 ± 1,424 (1M)",
    "hopper_ppo": "RL Zoo PPO 2,410 ± 10 (1M); CleanRL PPO 2,383 ± 272 (1M)",
    "hopper_sac": "RL Zoo SAC 2,326 ± 1,130 (1M); CleanRL SAC 2,310 ± 343 (1M)",
}


@dataclass(frozen=True)
class Returns(Measured):
    before: float
    """Mean return of the evaluation before the first step."""
    after: float
    """Mean return of the evaluation after the last step."""


def tell(run: Measured, done: Trained) -> Returns:
    initial, last = done.summary["initial_metrics"], done.summary["metrics"]
    return Returns(**asdict(run), before=initial["eval/return"], after=last["eval/return"])


def table(runs: Sequence[Returns]) -> str:
    """A Markdown table, a line per recipe; intervals are Student's 95% over the means of the seeds."""
    lines = [
        "| recipe | environment | seeds | return before | after, mean of seeds | each seed | episodes a seed "
        "| env steps | CPU-s | load | published |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for recipe, rows in by_recipe(runs).items():
        after = [row.after for row in rows]
        lines.append(
            f"| `{recipe}` | {rows[0].env} | {len(rows)} | {mean([row.before for row in rows]):,.1f} "
            f"| {mean(after):,.1f}{_spread(after)} | {', '.join(f'{value:,.1f}' for value in after)} "
            f"| {rows[0].episodes} | {mean([row.env_steps for row in rows]):,.0f} "
            f"| {span([row.cpu_seconds for row in rows])} | {span([row.load for row in rows])} "
            f"| {PUBLISHED[recipe]} |"
        )
    return "\n".join(lines)


def _spread(values: Sequence[float]) -> str:
    """Half of Student's 95% interval over seeds."""
    if len(values) < 2:
        return " (one seed)"
    return f" ± {mean_interval(values)[1] - statistics.mean(values):,.1f}"


STUDY = Study(
    name="sim_recipes",
    intervals="95% Student over seeds",
    recipes=tuple(PUBLISHED),
    kind=Returns,
    settings=lambda _config: (),
    tell=tell,
    table=table,
)

if __name__ == "__main__":
    STUDY.main(__doc__)
