"""A grader with a hole, and the option that closes it: what is paid and what the verifier finds, over seeds.

    python benchmarks/reward_hacking.py [--seeds 0,1,2] [--folder FOLDER] [--write] [KEY=VALUE ...]

Each run is `rlinf train examples/reward_hacking/NAME.yaml run.seed=SEED cluster.backend=local`. Runs that the folder
holds whole are not made again; ``--report`` makes none. ``KEY=VALUE`` words change all runs and are named in the table,
so they need a folder of their own.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from records import ROOT, Figure, add_output, save
from train_once import kept, train_once

from rlinf.report.health import HACKING, examine
from rlinf.report.runs import read_run
from rlinf.train.evaluation.intervals import wilson

EXAMPLE = ROOT / "examples" / "reward_hacking"
RECIPES = ("hole", "closed")
_CPU = "cpu_seconds.json"


def measure(recipe: str, seed: int, folder: Path, changes: list[str]) -> list[Figure]:
    """Train, unless ``folder`` holds that run whole; return its figures."""
    path = folder / f"{recipe}_{seed}"

    def cpu_seconds() -> float:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(EXAMPLE), os.environ.get("PYTHONPATH", "")])
        return train_once(EXAMPLE / f"{recipe}.yaml", path, seed, changes).cpu_seconds

    spent = round(kept(path / _CPU, cpu_seconds))
    run = read_run(path)
    case = ", ".join([f"`{recipe}`", *(f"`{change}`" for change in changes), f"seed {seed}"])
    count = int(run.values("eval/accuracy/n")[-1])
    found = []
    for when, index in (("before", 0), ("after", -1)):
        rate = run.values("eval/accuracy")[index]
        low, high = wilson(rate * count, count)
        interval = (round(low, 3), round(high, 3))
        found.append(Figure(case, f"verdict {when}", round(rate, 3), "", interval, count, (seed,)))
    paid = round(run.values("eval/reward")[-1], 3)
    found.append(Figure(case, "reward after", paid, "", None, count, (seed,)))
    finding = next((one.level for one in examine(run) if one.title == HACKING), "none")
    found.append(Figure(case, "Health: signs of reward hacking", None, remark=finding, seeds=(seed,)))
    return [*found, Figure(case, "CPU-seconds", spent, seeds=(seed,))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "reward_hacking")
    parser.add_argument("--report", action="store_true", help="only show what the folder holds")
    add_output(parser, "reward_hacking")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="of the configuration, for all runs")
    options = parser.parse_args()
    figures: list[Figure] = []
    for recipe in RECIPES:
        for seed in map(int, options.seeds.split(",")):
            if not options.report or (options.folder / f"{recipe}_{seed}" / _CPU).exists():
                figures += measure(recipe, seed, options.folder, options.changes)
                print(*figures[-6:], sep="\n", flush=True)
    if options.write:
        save(options.write, figures, intervals="95% Wilson", keep_others=True)


if __name__ == "__main__":
    main()
