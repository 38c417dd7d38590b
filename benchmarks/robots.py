"""Robot simulators trained by the recipes of ``config/sim/``: success before, on the way and after.

    python benchmarks/robots.py [--recipes fetch_reach,...] [--seeds 0,1,2] [--folder FOLDER] [--write]

Evaluated every few steps on start states that training never sees. Runs that the folder holds are not made again;
``--report`` makes none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from study import Measured, Study, by_recipe, mean, span
from train_once import Trained

from rlinf.config import Config
from rlinf.train.evaluation.intervals import wilson

RECIPES = (
    *("fetch_reach", "metaworld_reach", "metaworld_drawer_close", "minigrid_language"),
    *("panda_reach", "maniskill_push_cube", "robosuite_lift", "tabletop_vla"),
)
EVALUATIONS = 6
"""Of each run, in addition to the first and the last."""
SUCCESS = "eval/success_once"


@dataclass(frozen=True)
class Successes(Measured):
    success: list[float]
    """Evaluated success_once, from before the first step to after the last."""
    success_at_end: float


def settings(config: Config) -> Sequence[str]:
    return f"evaluation.every={max(1, config.run.max_steps // (EVALUATIONS + 1))}", "checkpoint.every=0"


def tell(run: Measured, done: Trained) -> Successes:
    success = [line[SUCCESS] for line in done.lines if SUCCESS in line]
    return Successes(**asdict(run), success=success, success_at_end=done.summary["metrics"]["eval/success_at_end"])


def table(runs: Sequence[Successes]) -> str:
    """A Markdown table, a line per recipe; intervals are Wilson's over the episodes of all seeds."""
    lines = [
        "| recipe | environment | seeds | success before | on the way (mean) | after | at the end | steps "
        "| minutes | CPU-s | load |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for recipe, rows in by_recipe(runs).items():
        way = [mean([row.success[at] for row in rows]) for at in range(1, min(len(row.success) for row in rows) - 1)]
        lines.append(
            f"| `{recipe}` | {rows[0].env} | {len(rows)} | {_rate(rows, [row.success[0] for row in rows])} "
            f"| {' '.join(f'{rate:.2f}' for rate in way)} | {_rate(rows, [row.success[-1] for row in rows])}: "
            f"{', '.join(f'{row.success[-1]:.2f}' for row in rows)} "
            f"| {mean([row.success_at_end for row in rows]):.2f} | {mean([row.env_steps for row in rows]):,.0f} "
            f"| {span([row.seconds / 60 for row in rows], 1)} | {span([row.cpu_seconds for row in rows])} "
            f"| {span([row.load for row in rows], 1)} |"
        )
    return "\n".join(lines)


def _rate(rows: Sequence[Successes], rates: Sequence[float]) -> str:
    """Of all seeds together: rate, 95% interval and number of episodes."""
    count = sum(row.episodes for row in rows)
    hits = round(sum(rate * row.episodes for rate, row in zip(rates, rows, strict=True)))
    low, high = wilson(hits, count)
    return f"{hits / count:.2f} [{low:.2f}, {high:.2f}] (n={count})"


STUDY = Study(
    name="robots",
    intervals="95% Wilson over the episodes of all seeds",
    recipes=RECIPES,
    kind=Successes,
    settings=settings,
    tell=tell,
    table=table,
)

if __name__ == "__main__":
    STUDY.main(__doc__)
