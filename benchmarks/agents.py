"""The recipes of ``config/agents/`` over seeds, and what credit for single turns adds.

    python benchmarks/agents.py [--recipes tools,code] [--seeds 0,1,2] [--folder FOLDER] [--write]

Every run is a process of its own, as a user starts it, with one thread. Its result is kept in its folder, so a second
call completes the tables and makes no run again; ``--report`` makes none.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from records import add_output, figures_of_table, save
from train_once import Trained, train_once

from rlinf.config import load
from rlinf.train.evaluation.intervals import mean_interval

ROOT = Path(__file__).resolve().parent.parent
_KEPT = "measured.json"

# Name -> file of config/agents/ and what is changed in it.
RUNS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "tools": ("tools", ()),
    "guess_number": ("guess_number", ()),
    "code": ("code", ()),
    "mixture": ("mixture", ()),
    "turn_credit": ("turn_credit", ()),
    "turn_credit, grpo": ("turn_credit", ("algorithm.adv_type=grpo", "algorithm.gamma=1")),
}
TURN_CREDIT = [name for name in RUNS if name.startswith("turn_credit")]
"""The credit for turns first, then what it is compared with."""


@dataclass(frozen=True)
class Measured:
    """One run."""

    recipe: str
    seed: int
    size: int
    """Conversations of each evaluation."""
    rewards: dict[int, float]
    """Step -> mean reward of the evaluation after it."""
    shown: dict[str, tuple[float, float]]
    """Metric -> before the first step, after the last."""
    seconds: float
    cpu_seconds: float
    """Of the whole tree of processes."""

    @classmethod
    def of(cls, recipe: str, seed: int, done: Trained) -> Measured:
        before, after = done.summary["initial_metrics"], done.summary["metrics"]
        parts = sorted(name for name in after if name.startswith("eval/reward/"))
        rewards = {0: float(before["eval/reward"])}
        rewards |= {int(line["step"]): line["eval/reward"] for line in done.lines if "eval/reward" in line}
        return cls(
            recipe,
            seed,
            size=int(after["eval/accuracy/n"]),
            rewards=rewards,
            shown={name: (before[name], after[name]) for name in parts or ["eval/reward"]},
            seconds=done.seconds,
            cpu_seconds=done.cpu_seconds,
        )

    @classmethod
    def read(cls, path: Path) -> Measured:
        kept = json.loads(path.read_text())
        kept["rewards"] = {int(step): reward for step, reward in kept["rewards"].items()}
        return cls(**kept)


def measure(recipe: str, seed: int, folder: Path) -> Measured:
    """Trains once, unless ``folder`` holds that run."""
    path = folder / f"{recipe.replace(', ', '_')}_{seed}"
    if not (path / _KEPT).exists():
        name, settings = RUNS[recipe]
        file = ROOT / "config" / "agents" / f"{name}.yaml"
        load(file, settings)
        done = Measured.of(recipe, seed, train_once(file, path, seed, settings))
        (path / _KEPT).write_text(json.dumps(asdict(done)))
    return Measured.read(path / _KEPT)


def table(runs: Sequence[Measured]) -> str:
    """A Markdown table, a line per recipe and part of it."""
    lines = [
        "| recipe | seeds | conversations an evaluation | reward before | after | steps | CPU-s | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for recipe in RUNS:
        rows = [run for run in runs if run.recipe == recipe]
        for number, metric in enumerate(rows[0].shown if rows else ()):
            name = f"`{recipe}`" if number == 0 else ""
            part = metric.removeprefix("eval/reward").removeprefix("/")
            seeds = ", ".join(str(run.seed) for run in rows)
            before, after = ([f"{run.shown[metric][at]:.2f}" for run in rows] for at in (0, 1))
            cost = [
                str(max(rows[0].rewards)),
                _span([run.cpu_seconds for run in rows]),
                _span([run.seconds for run in rows]),
            ]
            lines.append(
                f"| {name}{' ' if name and part else ''}{part} | {seeds} | {rows[0].size} | {', '.join(before)} "
                f"| {', '.join(after)} | {' | '.join(cost if number == 0 else ['', '', ''])} |"
            )
    return "\n".join(lines)


def credit(runs: Sequence[Measured]) -> str:
    """Rewards at equal steps with credit for turns and for whole conversations, and their differences seed by seed."""
    ours, whole = ({run.seed: run for run in runs if run.recipe == name} for name in TURN_CREDIT)
    seeds = sorted(ours.keys() & whole.keys())
    if not seeds:
        return ""
    lines = [
        "| steps | a turn's own credit (`grpo_turn`, gamma 0) | the conversation's (`grpo`) | difference, paired |",
        "|---|---|---|---|",
    ]
    for step in ours[seeds[0]].rewards:
        ones, others = ([arm[seed].rewards[step] for seed in seeds] for arm in (ours, whole))
        gains = [one - other for one, other in zip(ones, others, strict=True)]
        cells = (", ".join(f"{value:.2f}" for value in values) for values in (ones, others))
        lines.append(f"| {step} | {' | '.join(cells)} | {_interval(gains)} |")
    return "\n".join(lines)


def _interval(values: Sequence[float]) -> str:
    """Mean and Student's 95% interval.

    >>> _interval([0.5, 0.6, 0.7])
    '+0.60 ± 0.25'
    """
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:+.2f} (one seed)"
    return f"{mean:+.2f} ± {mean_interval(values)[1] - mean:.2f}"


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return low if low == high else f"{low} to {high}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--recipes", default=";".join(RUNS), help="separated by semicolons")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "agents")
    add_output(parser, "agents")
    parser.add_argument("--report", action="store_true", help="only tell what the folder holds")
    options = parser.parse_args()
    if not options.report:
        for seed in (int(text) for text in options.seeds.split(",")):
            for recipe in options.recipes.split(";"):
                print(measure(recipe, seed, options.folder), flush=True)
    runs = sorted(map(Measured.read, options.folder.glob(f"*/{_KEPT}")), key=lambda run: run.seed)
    text = f"{table(runs)}\n\n{credit(runs)}".strip()
    print(text)
    if options.write:
        save(options.write, figures_of_table(text), intervals="95% Student over seeds")


if __name__ == "__main__":
    main()
