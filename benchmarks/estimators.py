"""A finished sweep of ``config/sweeps/estimators.yaml`` as a record: every estimator over seeds, paired with grpo.

    rlinf sweep config/sweeps/estimators.yaml
    python benchmarks/estimators.py [--folder runs/sweeps/estimators] [--write]

All trials of a seed start from one policy and are graded on the same held-out tasks, so differences are taken seed by
seed. A sweep that was cut is read as far as it went: every row has its own seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from records import ROOT, Figure, add_output, save

from rlinf.sweep.records import read_sweep
from rlinf.sweep.summary import SettingResult, summarise
from rlinf.train.evaluation.intervals import mean_interval

START, PAIRED_WITH = "warm_start", "grpo"


def figures(settings: Sequence[SettingResult]) -> list[Figure]:
    """Return the figures of each estimator, the best first."""
    by_name = {str(one.setting["estimator"]): one for one in settings if one.finals}
    reference = by_name[PAIRED_WITH].by_seed
    found = []
    for name, one in by_name.items():
        case, seeds = f"`{name}`", tuple(sorted(one.by_seed))
        tasks = int([count for count in one.counted[0].series["eval/accuracy/n"] if count is not None][-1])
        found.append(_over_seeds(case, "held-out accuracy", one.by_seed, seeds))
        for seed in seeds:
            found.append(Figure(case, f"seed {seed}", round(one.by_seed[seed], 3), n=tasks, seeds=(seed,)))
        shared = tuple(seed for seed in seeds if seed in reference)
        if name not in (START, PAIRED_WITH):
            gains = {seed: one.by_seed[seed] - reference[seed] for seed in shared}
            found.append(_over_seeds(case, f"minus `{PAIRED_WITH}`, paired", gains, shared))
        spent = [trial.record.cpu_s for trial in one.counted]
        found.append(Figure(case, "CPU-seconds", round(sum(spent) / len(spent)), seeds=seeds))
    return found


def _over_seeds(case: str, metric: str, by_seed: dict[int, float], seeds: tuple[int, ...]) -> Figure:
    values = [by_seed[seed] for seed in seeds]
    low, high = mean_interval(values)
    interval = (round(low, 3), round(high, 3)) if len(values) > 1 else None
    return Figure(case, metric, round(sum(values) / len(values), 3), "", interval, None, seeds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "sweeps" / "estimators")
    add_output(parser, "estimators")
    options = parser.parse_args()
    found = figures(summarise(read_sweep(options.folder)).settings)
    print(*found, sep="\n")
    if options.write:
        save(options.write, found, intervals="95% Student over seeds")


if __name__ == "__main__":
    main()
