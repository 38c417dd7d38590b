"""Predicted and measured time: `rlinf check RECIPE --time` against the run itself, over recipes of different kinds.

    python benchmarks/check_time.py [--write]

Recipes are shortened where they would take long, by their numbers of steps alone: what a step does is the recipe's own.
Both times are of a command in a process of its own. What the prediction leaves out on purpose (report, export of the
policy, the start of Python) is part of the measured time.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from records import add_output, figures_of_table, save

ROOT = Path(__file__).resolve().parent.parent
RECIPES: dict[str, tuple[str, ...]] = {
    "sim/cartpole_ppo": (),
    "sim/cartpole_grpo": ("run.max_steps=10",),
    "sim/pendulum_sac": ("run.max_steps=100",),
    "sim/tabletop_vla": ("sft.steps=20", "sft.demonstrations=50", "run.max_steps=0", "evaluation.size=32"),
    "math/quickstart": ("sft.steps=60", "run.max_steps=6", "evaluation.size=50"),
    "agents/guess_number": ("sft.steps=60", "run.max_steps=8", "evaluation.size=50"),
}
_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Timed:
    """Seconds of one recipe."""

    recipe: str
    predicted: float
    whole: float
    """Of the command, with everything."""
    run: float
    """What the run itself counted: "N s in all"."""


def seconds(text: str) -> float:
    """
    >>> seconds("1 min 15 s"), seconds("0.5 s"), seconds("2 h 2 min")
    (75.0, 0.5, 7320.0)
    """
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+) (s|min|h)\b", text))


def command(*words: str) -> tuple[str, float]:
    """(output, seconds) of `rlinf WORDS`."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "rlinf.cli", *words], cwd=ROOT, env=env, text=True, capture_output=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"rlinf {' '.join(words)}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout, time.perf_counter() - began


def timed(recipe: str, overrides: tuple[str, ...]) -> Timed:
    """One recipe in one process (`cluster.backend: local`)."""
    words = (recipe, "cluster.backend=local", *overrides)
    output, _ = command("check", "--time", *words)
    predicted = re.search(r"^ +in all +(\d.*)$", output, re.M)
    assert predicted is not None, output
    with tempfile.TemporaryDirectory() as folder:
        output, whole = command("train", *words, f"run.dir={folder}/run")
    counted = re.search(r"^(\d.*) in all\.", output, re.M)
    assert counted is not None, output
    return Timed(recipe, seconds(predicted[1]), whole, seconds(counted[1]))


def lines(found: list[Timed]) -> Iterator[str]:
    """A Markdown table."""
    yield "| recipe | shortened to | predicted | measured: run | predicted / run | measured: command |"
    yield "|---|---|---|---|---|---|"
    for one in found:
        short = ", ".join(RECIPES[one.recipe]) or "nothing"
        ratio = one.predicted / one.run
        yield f"| {one.recipe} | {short} | {one.predicted:.0f} s | {one.run:.0f} s | {ratio:.2f} | {one.whole:.0f} s |"


def main() -> None:
    """Prints the table; ``--write`` keeps its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_output(parser, "check_time")
    parser.add_argument("recipes", nargs="*", default=list(RECIPES), help="some of the recipes")
    options = parser.parse_args()
    found = []
    for recipe in options.recipes:
        found.append(timed(recipe, RECIPES[recipe]))
        print(list(lines(found))[-1], flush=True)
    text = "\n".join(lines(found))
    print(text)
    if options.write:
        save(options.write, figures_of_table(text), intervals="")


if __name__ == "__main__":
    main()
