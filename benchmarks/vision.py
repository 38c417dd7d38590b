"""Recipes of ``config/vision/`` over seeds: held-out accuracy before and after, and with blank and swapped pictures.

    python benchmarks/vision.py [--recipes shapes,questions] [--seeds 0,1,2] [--folder FOLDER] [--write FILE]

Every run is a process of its own, `rlinf train FILE run.seed=SEED cluster.backend=local`, with one thread. Runs that
the folder holds are not made again; ``--report`` makes none. ``--write`` writes a record a recipe,
``benchmarks/results/vision_RECIPE.json``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from records import RESULTS, ROOT, Figure, load, save
from train_once import train_once

from rlinf.train import evaluate_run
from rlinf.train.evaluation.intervals import wilson

RECIPES = ("shapes", "figures", "details", "questions")
_KEPT = "measured.json"
_RATES = {"accuracy": "accuracy", "success_once": "success"}
"""Metric of evaluation -> what it is called in the record."""
_OTHERS = ("blank", "swapped")
_PAGE = ROOT / "docs" / "vision.md"
_MARK = "<!-- results: python benchmarks/vision.py --report --write -->"
"""Above the table of the page."""


@dataclass(frozen=True)
class Measured:
    """One run: rates are of held-out tasks, with their 95% Wilson intervals."""

    recipe: str
    seed: int
    tasks: int
    cpu_seconds: float
    """Of the whole tree of processes, start and evaluations included."""
    rates: Mapping[str, tuple[float, float, float]]
    """Column -> (rate, low, high)."""


def interval(rate: float, n: int) -> tuple[float, float, float]:
    """Return a rate of ``n`` tasks with its 95% Wilson interval."""
    low, high = wilson(rate * n, n)
    return round(rate, 4), round(low, 4), round(high, 4)


def measure(recipe: str, seed: int, folder: Path) -> Measured:
    """Train once, unless ``folder`` holds that run."""
    path = folder / f"{recipe}_{seed}"
    if (path / _KEPT).exists():
        return read(path / _KEPT)
    done = train_once(ROOT / "config" / "vision" / f"{recipe}.yaml", path, seed)
    before, after = done.summary["initial_metrics"], done.summary["metrics"]
    name = next(name for name in _RATES if f"eval/{name}/n" in after)
    tasks = int(after[f"eval/{name}/n"])
    rates = {f"{_RATES[name]} before": before[f"eval/{name}"], f"{_RATES[name]} after": after[f"eval/{name}"]}
    for which in _OTHERS:
        column = f"eval/{which}_pictures"
        rates[f"with {which} pictures"] = after[column] if column in after else _with_others(path, which, name)
    if recipe == "details":
        rates["with a blank enlarged part"] = _with_others(path, "blank", name)
    found = Measured(recipe, seed, tasks, done.cpu_seconds, {key: interval(rate, tasks) for key, rate in rates.items()})
    (path / _KEPT).write_text(json.dumps(asdict(found)))
    return found


def _with_others(folder: Path, which: str, metric: str) -> float:
    """Evaluate a run again, whose environment itself shows other pictures."""
    settings = [f"evaluation.env_kwargs={{shown: {which}}}", "evaluation.pictures=[]"]
    return float(evaluate_run(str(folder), settings).metrics[f"eval/{metric}"])


def read(path: Path) -> Measured:
    """Read a run that was kept."""
    return Measured(**json.loads(path.read_text()))


def figures(runs: Sequence[Measured]) -> list[Figure]:
    """Return a figure for each rate and the CPU-seconds of each run."""
    found = []
    for run in runs:
        case = f"`{run.recipe}`, seed {run.seed}"
        for column, (rate, low, high) in run.rates.items():
            found.append(Figure(case, column, rate, "", (low, high), run.tasks, (run.seed,)))
        found.append(Figure(case, "CPU-seconds", round(run.cpu_seconds), "", None, None, (run.seed,)))
    return found


def page(text: str) -> str:
    """Return the text of docs/vision.md with a table of the committed records instead of the one it has."""
    rows = ["| recipe | seeds | before | after | blank pictures | swapped pictures | CPU-seconds |", "|---" * 7 + "|"]
    for recipe in RECIPES:
        path = RESULTS / f"vision_{recipe}.json"
        if not path.exists():
            continue
        columns: dict[str, list[float]] = {}
        seeds = []
        for one in load(path).figures:
            # Rates are called after what is graded: accuracy before, success before.
            name = one.metric if "pictures" in one.metric else one.metric.rpartition(" ")[2]
            columns.setdefault(name, []).append(one.value or 0.0)
            seeds += [str(seed) for seed in one.seeds or () if str(seed) not in seeds]
        rates = [
            columns.get(name, []) for name in ("before", "after", *(f"with {which} pictures" for which in _OTHERS))
        ]
        cells = [", ".join(f"{rate:.3f}" for rate in column) for column in rates]
        spent = ", ".join(f"{seconds:.0f}" for seconds in columns.get("CPU-seconds", []))
        rows.append(f"| `{recipe}` | {', '.join(seeds)} | {' | '.join(cells)} | {spent} |")
    before, _, rest = text.partition(_MARK)
    return f"{before}{_MARK}\n" + "\n".join(rows) + "\n" + rest[rest.index("\n\n") + 1 :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "vision")
    parser.add_argument("--report", action="store_true", help="only show what the folder holds")
    parser.add_argument("--write", action="store_true", help="write the figures of each recipe as JSON")
    options = parser.parse_args()
    if not options.report:
        for recipe in options.recipes.split(","):
            for seed in options.seeds.split(","):
                print(measure(recipe, int(seed), options.folder), flush=True)
    runs = sorted(map(read, options.folder.glob(f"*/{_KEPT}")), key=lambda run: (RECIPES.index(run.recipe), run.seed))
    for run in runs:
        print(run)
    if options.write:
        for recipe in {run.recipe for run in runs}:
            own = figures([run for run in runs if run.recipe == recipe])
            save(RESULTS / f"vision_{recipe}.json", own, intervals="95% Wilson")
        _PAGE.write_text(page(_PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
