"""Settings of one recipe trained with the same seeds: what each reaches, CPU-seconds, and paired differences.

    python benchmarks/same_seeds.py dagger [--seeds 0,1,2] [--write]     # HG-DAgger, and the same run without rounds
    python benchmarks/same_seeds.py sac_flow [--seeds 0,1,2] [--write]   # SAC on a flow policy, and plain SAC

Every run is a process of its own with one thread. Its result is kept in ``--folder``, so a second call completes a
table and makes no run again. Evaluations are greedy, on start states that training never sees.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from records import RESULTS, ROOT, Figure, save
from train_once import kept, train_once

from rlinf.train.evaluation.intervals import mean_interval


@dataclass(frozen=True)
class Comparison:
    """Settings of a recipe of ``config/sim/``."""

    record: str
    """Its file in `benchmarks/results/`."""
    recipe: str
    metric: str
    called: str
    """The metric in words."""
    sides: Mapping[str, tuple[str, ...]]
    """Name of a row -> keys that are changed; the others are compared with the first."""
    digits: int = 3
    further: Mapping[str, str] | None = None
    """Metrics of training whose sum over the run is shown, with their words."""
    command: str = "train"
    shared: tuple[str, ...] = ()
    """Keys that are changed for all sides."""


COMPARISONS = {
    "dagger": Comparison(
        "tabletop_dagger",
        "tabletop_dagger",
        "eval/success_once",
        "success",
        {
            "`tabletop_dagger`, four rounds of corrections": (),
            "without rounds": ("sft.dagger_rounds=0", "sft.gate=null"),
            "without rounds, 320 demonstrations": ("sft.dagger_rounds=0", "sft.gate=null", "sft.demonstrations=320"),
        },
        further={"sft/dagger_decisions": "corrected decisions an episode, summed over rounds"},
        command="sft",
        shared=("evaluation.size=256",),
    ),
    "sac_flow": Comparison(
        "sac_flow",
        "pendulum_sac_flow",
        "eval/return",
        "return",
        {"`pendulum_sac_flow`": (), "the same with `loss_type: sac`": ("algorithm.loss_type=sac",)},
        digits=1,
        shared=("run.max_steps=500", "evaluation.every=100"),
    ),
}


@dataclass(frozen=True)
class Reached:
    """One run."""

    curve: dict[str, float]
    """Training iteration -> the metric."""
    further: dict[str, float]
    episodes: int
    cpu_seconds: float


def measure(comparison: Comparison, side: str, seed: int, folder: Path) -> Reached:
    """Train once, or read what an earlier call left."""
    path = folder / f"{comparison.record}_{list(comparison.sides).index(side)}_{seed}"

    def train() -> dict[str, object]:
        file = ROOT / "config" / "sim" / f"{comparison.recipe}.yaml"
        changes = (*comparison.shared, *comparison.sides[side])
        done = train_once(file, path, seed, changes, command=comparison.command)
        curve = {str(int(line["step"])): line[comparison.metric] for line in done.lines if comparison.metric in line}
        sums = {name: sum(line.get(name, 0.0) for line in done.lines) for name in comparison.further or {}}
        episodes = int(done.summary["metrics"][f"{comparison.metric}/n"])
        return {"curve": curve, "further": sums, "episodes": episodes, "cpu_seconds": done.cpu_seconds}

    folder.mkdir(parents=True, exist_ok=True)
    return Reached(**kept(folder / f"{path.name}.json", train))


def interval(values: Sequence[float], digits: int) -> tuple[float, tuple[float, float] | None]:
    """Return the mean over seeds and Student's 95% interval, rounded; None of a single value.

    >>> interval([1.0, 2.0, 3.0], 2)
    (2.0, (-0.48, 4.48))
    """
    mean = round(statistics.mean(values), digits)
    if len(values) < 2:
        return mean, None
    low, high = mean_interval(values)
    return mean, (round(low, digits), round(high, digits))


def figures(comparison: Comparison, runs_of: Mapping[str, Sequence[Reached]], seeds: tuple[int, ...]) -> list[Figure]:
    """Build the table's cells: by side each point of the curve, its end by seed, its cost and its lead."""
    results = []
    baseline = [list(run.curve.values())[-1] for run in next(iter(runs_of.values()))]
    for side, runs in runs_of.items():
        n = sum(run.episodes for run in runs)
        for step in [step for step in list(runs[0].curve)[:-1] if int(step) >= 0]:
            value, ends = interval([run.curve[step] for run in runs], comparison.digits)
            results.append(
                Figure(side, f"{comparison.called} after {int(step):,} iterations", value, "", ends, n, seeds)
            )
        last = [list(run.curve.values())[-1] for run in runs]
        value, ends = interval(last, comparison.digits)
        each = ", ".join(f"{one:.{comparison.digits}f}" for one in last)
        results.append(Figure(side, f"{comparison.called} at the end", value, "", ends, n, seeds, f"by seed: {each}"))
        if side != next(iter(runs_of)):
            value, ends = interval(
                [mine - other for mine, other in zip(last, baseline, strict=True)], comparison.digits
            )
            results.append(Figure(side, "minus the first row, paired by seed", value, "", ends, n, seeds))
        for name, words in (comparison.further or {}).items():
            value, _ = interval([run.further[name] for run in runs], 1)
            results.append(Figure(side, words, value, n=n, seeds=seeds))
        costs = [round(run.cpu_seconds) for run in runs]
        results.append(
            Figure(side, "CPU-seconds a run", round(statistics.mean(costs)), "", (min(costs), max(costs)), None, seeds)
        )
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparison", choices=list(COMPARISONS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "same_seeds")
    parser.add_argument("--write", action="store_true", help="write the figures into benchmarks/results/")
    options = parser.parse_args()
    comparison, seeds = COMPARISONS[options.comparison], tuple(int(seed) for seed in options.seeds.split(","))
    runs_of: dict[str, list[Reached]] = {side: [] for side in comparison.sides}
    for seed in seeds:  # all sides of a seed before the next: a table that was stopped compares what it has
        for side in comparison.sides:
            runs_of[side].append(measure(comparison, side, seed, options.folder))
            print(f"seed {seed}, {side}: {runs_of[side][-1]}", flush=True)
    results = figures(comparison, runs_of, seeds)
    for one in results:
        print(one.case, "|", one.metric, "|", one.value, one.interval, one.remark)
    if options.write:
        words = "95%, Student's t over the seeds; of CPU-seconds smallest to largest"
        save(RESULTS / f"{comparison.record}.json", results, intervals=words)


if __name__ == "__main__":
    main()
