"""Responses that must grow: accuracy and length by the number of terms, before and after GRPO, over seeds.

    python benchmarks/longer_thoughts.py [--seeds 0,1,2] [--folder FOLDER] [--write] [KEY=VALUE ...]

Each run is `rlinf train config/math/longer_thoughts.yaml run.seed=SEED cluster.backend=local`, and once more with
`run.max_steps=0` for the policy before it. Both are graded on chains of 3 to 8 terms; those of 6 and more are longer
than any in training. Runs that the folder holds whole are not made again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from records import ROOT, Figure, add_output, save
from train_once import kept, train_once

from rlinf.train import evaluate_run
from rlinf.train.evaluation.intervals import mean_interval

RECIPE = ROOT / "config" / "math" / "longer_thoughts.yaml"
TERMS = (3, 4, 5, 6, 7, 8)
TRAINED = 5
TASKS = 300
Graded = dict[str, dict[str, float]]
"""Number of terms -> accuracy, and response length [tokens]."""


def graded(path: Path, seed: int, changes: Sequence[str]) -> Graded:
    """Train into ``path``, unless it holds that run whole; return its grades."""

    def measure() -> Graded:
        train_once(RECIPE, path, seed, changes)
        found: Graded = {}
        for terms in TERMS:
            size = f"params={{min_terms: {terms}, max_terms: {terms}, min_digits: 1, max_digits: 1}}"
            keys = [f"evaluation.env_kwargs.{size}", f"evaluation.size={TASKS}", f"evaluation.env_kwargs.size={TASKS}"]
            metrics = evaluate_run(str(path), keys).metrics
            found[str(terms)] = {name: metrics[f"eval/{name}"] for name in ("accuracy", "response_length")}
        return found

    grades: Graded = kept(path / "lengths.json", measure)
    return grades


def figures(before: Sequence[Graded], after: Sequence[Graded], seeds: tuple[int, ...]) -> list[Figure]:
    """Return the figures of each number of terms: means over seeds, and the gain of training, seed by seed."""
    found = []
    for terms in TERMS:
        case = f"{terms} terms" + ("" if terms <= TRAINED else ", longer than trained")
        for metric, name, unit in (("accuracy", "accuracy", ""), ("response length", "response_length", "tokens")):
            pairs = [(one[str(terms)][name], other[str(terms)][name]) for one, other in zip(before, after, strict=True)]
            for when, values in (
                ("before", [first for first, _ in pairs]),
                ("after", [last for _, last in pairs]),
                ("gain", [last - first for first, last in pairs]),
            ):
                low, high = mean_interval(values)
                interval = (round(low, 3), round(high, 3)) if when == "gain" else None
                mean = round(sum(values) / len(values), 3)
                found.append(Figure(case, f"{metric}, {when}", mean, unit, interval, TASKS, seeds))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "longer_thoughts")
    add_output(parser, "longer_thoughts")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="of the configuration, for all runs")
    options = parser.parse_args()
    seeds = tuple(map(int, options.seeds.split(",")))
    before, after = [], []
    for seed in seeds:
        before.append(graded(options.folder / f"before_{seed}", seed, (*options.changes, "run.max_steps=0")))
        after.append(graded(options.folder / f"after_{seed}", seed, options.changes))
        print(seed, before[-1], after[-1], sep="\n", flush=True)
    found = figures(before, after, seeds)
    print(*found, sep="\n")
    if options.write:
        save(options.write, found, intervals="95% Student over seeds")


if __name__ == "__main__":
    main()
