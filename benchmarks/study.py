"""Recipes trained over seeds, as a table: what the benchmarks of simulators share.

Every run is a process of its own, `rlinf train FILE run.seed=SEED cluster.backend=local`. Its result is kept in
the run's folder, so a second call completes a table and makes no run again.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Generic, TypeVar

from records import add_output, figures_of_table, save
from train_once import Trained, train_once

from rlinf.config import Config, load

ROOT = Path(__file__).resolve().parent.parent
_KEPT = "measured.json"


@dataclass(frozen=True)
class Measured:
    """One run."""

    recipe: str
    env: str
    seed: int
    episodes: int
    """Of each evaluation."""
    env_steps: int
    seconds: float
    """Of wall clock, start and evaluations included."""
    cpu_seconds: float
    """Of the whole tree of processes."""
    load: float
    """Running processes of the machine over the last minute, at the end; this run is one of them."""

    @classmethod
    def common(cls, recipe: str, seed: int, config: Config, done: Trained) -> Measured:
        """What every study tells of a run."""
        metrics = done.summary["metrics"]
        return Measured(
            recipe,
            " ".join(
                str(part) for part in (config.env.id.rpartition(":")[2], config.env.kwargs.get("task", ""))
            ).strip(),
            seed,
            episodes=int(metrics["eval/return/n"]),
            env_steps=done.env_steps,
            seconds=done.seconds,
            cpu_seconds=done.cpu_seconds,
            load=os.getloadavg()[0],
        )


Run = TypeVar("Run", bound=Measured)


@dataclass(frozen=True)
class Study(Generic[Run]):
    """A table of recipes of ``config/sim/``. ``tell`` makes a row of the run that ``settings`` are added to."""

    name: str
    """Of its record in `benchmarks/results/`."""
    intervals: str
    """Kind of the intervals in the table."""
    recipes: Sequence[str]
    """In the order of the table."""
    kind: type[Run]
    settings: Callable[[Config], Sequence[str]]
    tell: Callable[[Measured, Trained], Run]
    table: Callable[[Sequence[Run]], str]

    def measure(self, recipe: str, seed: int, folder: Path, settings: Sequence[str] = ()) -> Run:
        """Trains once, in a process of its own, unless ``folder`` holds that run."""
        path = folder / f"{recipe}_{seed}"
        if (path / _KEPT).exists():
            return self._read(path / _KEPT)
        file = ROOT / "config" / "sim" / f"{recipe}.yaml"
        config = load(file, settings)
        done = train_once(file, path, seed, (*self.settings(config), *settings))
        measured = self.tell(Measured.common(recipe, seed, config, done), done)
        (path / _KEPT).write_text(json.dumps(asdict(measured)))
        return measured

    def runs(self, folder: Path) -> list[Run]:
        """All that ``folder`` holds, in the order of the recipes."""
        found = [self._read(path) for path in folder.glob(f"*/{_KEPT}")]
        return sorted(found, key=lambda run: (self.recipes.index(run.recipe), run.seed))

    def main(self, description: str) -> None:
        """The command line."""
        parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--seeds", default="0,1,2")
        parser.add_argument("--recipes", default=",".join(self.recipes))
        parser.add_argument("--folder", type=Path, default=ROOT / "runs" / self.name)
        parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="changes every recipe")
        add_output(parser, self.name)
        parser.add_argument("--report", action="store_true", help="only tell what the folder holds")
        options = parser.parse_args()
        if not options.report:
            for seed in (int(text) for text in options.seeds.split(",")):
                for recipe in options.recipes.split(","):
                    print(self.measure(recipe, seed, options.folder, options.set), flush=True)
        table = self.table(self.runs(options.folder))
        print(table)
        if options.write:
            save(options.write, figures_of_table(table), intervals=self.intervals)

    def _read(self, path: Path) -> Run:
        return self.kind(**json.loads(path.read_text()))


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def span(values: Sequence[float], digits: int = 0) -> str:
    """
    >>> span([3.2, 1.0]), span([2.0, 2.01])
    ('1 to 3', '2')
    """
    low, high = (f"{value:,.{digits}f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def by_recipe(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each recipe, in the order they come."""
    return {name: [run for run in runs if run.recipe == name] for name in dict.fromkeys(run.recipe for run in runs)}
