"""Robot simulators trained by the recipes of ``config/sim/``: success before, on the way and after.

    python benchmarks/robots.py [--recipes fetch_reach,...] [--seeds 0,1,2] [--folder FOLDER] [--write]

Every run is a process of its own: `rlinf train config/sim/NAME.yaml run.seed=SEED cluster.backend=local`, evaluated
every few steps on start states that training never sees. CPU-seconds are those of the whole tree of processes.
Runs that the folder already holds are not made again, so a second call completes a table; ``--report`` makes none.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from train_once import train_once

from rlinf.config import load
from rlinf.train.statistics import wilson

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "robots.md"
RECIPES = (
    *("fetch_reach", "metaworld_reach", "metaworld_drawer_close", "minigrid_language"),
    *("maniskill_push_cube", "robosuite_lift"),
)
EVALUATIONS = 6
"""Of each run, beside the first and the last."""
SUCCESS = "eval/success_once"


@dataclass(frozen=True)
class Measured:
    """One run."""

    recipe: str
    env: str
    seed: int
    success: list[float]
    """Evaluated success_once, from before the first step to after the last."""
    success_at_end: float
    episodes: int
    """Of each evaluation."""
    env_steps: int
    seconds: float
    """Of wall clock, start and evaluations included."""
    cpu_seconds: float
    load: float
    """Running processes of the machine over the last minute, at the end; this run is one of them."""


def measure(recipe: str, seed: int, folder: Path, settings: Sequence[str]) -> Measured:
    """Trains once, in a process of its own."""
    path = folder / f"{recipe}_{seed}"
    kept = path / "measured.json"
    if kept.exists():
        return Measured(**json.loads(kept.read_text()))
    file = ROOT / "config" / "sim" / f"{recipe}.yaml"
    config = load(file, settings)
    evaluations = f"evaluation.every={max(1, config.run.max_steps // (EVALUATIONS + 1))}"
    done = train_once(file, path, seed, (evaluations, "checkpoint.every=0", *settings))
    told = done.summary["metrics"]
    measured = Measured(
        recipe,
        " ".join(str(part) for part in (config.env.id.rpartition(":")[2], config.env.kwargs.get("task", ""))).strip(),
        seed,
        success=[line[SUCCESS] for line in done.lines if SUCCESS in line],
        success_at_end=told["eval/success_at_end"],
        episodes=int(told[f"{SUCCESS}/n"]),
        env_steps=done.env_steps,
        seconds=done.seconds,
        cpu_seconds=done.cpu_seconds,
        load=os.getloadavg()[0],
    )
    kept.write_text(json.dumps(asdict(measured)))
    return measured


def table(runs: Sequence[Measured]) -> str:
    """A Markdown table, a line per recipe; intervals are Wilson's over the episodes of all seeds."""
    lines = [
        "| recipe | environment | seeds | success before | on the way (mean) | after | at the end | steps "
        "| minutes | CPU-s | load |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for recipe in dict.fromkeys(run.recipe for run in runs):
        rows = [run for run in runs if run.recipe == recipe]
        way = [_mean([row.success[at] for row in rows]) for at in range(1, min(len(row.success) for row in rows) - 1)]
        lines.append(
            f"| `{recipe}` | {rows[0].env} | {len(rows)} | {_rate(rows, [row.success[0] for row in rows])} "
            f"| {' '.join(f'{rate:.2f}' for rate in way)} | {_rate(rows, [row.success[-1] for row in rows])}: "
            f"{', '.join(f'{row.success[-1]:.2f}' for row in rows)} "
            f"| {_mean([row.success_at_end for row in rows]):.2f} | {_mean([row.env_steps for row in rows]):,.0f} "
            f"| {_span([row.seconds / 60 for row in rows])} | {_span([row.cpu_seconds for row in rows])} "
            f"| {_span([row.load for row in rows])} |"
        )
    return "\n".join(lines)


def _rate(rows: Sequence[Measured], rates: Sequence[float]) -> str:
    """Of all seeds together: rate, 95% interval and number of episodes."""
    count = sum(row.episodes for row in rows)
    hits = round(sum(rate * row.episodes for rate, row in zip(rates, rows, strict=True)))
    low, high = wilson(hits, count)
    return f"{hits / count:.2f} [{low:.2f}, {high:.2f}] (n={count})"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):,.1f}", f"{max(values):,.1f}"
    return low if low == high else f"{low}-{high}"


def write_section(runs: Sequence[Measured]) -> None:
    """The section of ``benchmarks/RESULTS.md`` about robots."""
    RESULTS.write_text(
        "## Robot simulators\n\n"
        "`python benchmarks/robots.py --write`: each recipe as it is in `config/sim/`, trained by\n"
        "`rlinf train config/sim/NAME.yaml run.seed=SEED cluster.backend=local` with evaluations on the way, on start\n"
        "states that training never sees. Success is each benchmark's own criterion, reached once in an episode; `at\n"
        "the end` says how many still satisfied it in the last step. Intervals are Wilson's 95% over the episodes of\n"
        "all seeds (they say nothing of the spread between seeds, which the single values show; Meta-World's episodes\n"
        "are of 10 held-out starts, so that its intervals are narrower than they should be). Minutes are of a\n"
        "machine with two cores and as many other processes as `load` says; CPU-seconds are of the whole tree.\n\n"
        + table(runs)
        + "\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "robots")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="changes every recipe")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.relative_to(ROOT)}")
    parser.add_argument("--report", action="store_true", help="only tell what the folder holds")
    options = parser.parse_args()
    if not options.report:
        for seed in (int(text) for text in options.seeds.split(",")):
            for recipe in options.recipes.split(","):
                print(measure(recipe, seed, options.folder, options.set), flush=True)
    found = [Measured(**json.loads(path.read_text())) for path in options.folder.glob("*/measured.json")]
    runs = sorted(found, key=lambda run: (RECIPES.index(run.recipe), run.seed))
    print(table(runs))
    if options.write:
        write_section(runs)


if __name__ == "__main__":
    main()
