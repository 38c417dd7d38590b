"""A recipe of ``config/smollm2/``, one seed after the other: accuracy before and after, steps and CPU-seconds.

    python benchmarks/smollm2.py [--recipe word_problems] [--seeds 0,1,2] [--write FILE] [KEY=VALUE ...]

Every run is `rlinf train FILE cluster.backend=local cluster.threads_per_worker=1 run.seed=S`, in a process of its own
whose CPU-seconds are counted (user and system, start and evaluations included); ``KEY=VALUE`` words are added to it
(``run.max_steps=12``) and stand above the table. A recipe with a supervised stage begins with `rlinf sft FILE`, which
evaluates before and after it, and whose run `rlinf train` continues. Runs that the folder holds whole are not made
again, so a second call completes a table; ``--report`` makes none. Models come from `make models/smollm2`.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path

from records import figures_of_table, save

from rlinf.config import load

ROOT = Path(__file__).resolve().parent.parent
_CPU = "cpu_seconds.json"
_SHARED = ("cluster.backend=local", "cluster.threads_per_worker=1", "logging.progress=plain")


def train(recipe: str, seed: int, folder: Path, changes: list[str]) -> None:
    """Trains unless ``folder`` has the finished run; what was cut short goes on."""
    if (folder / "summary.json").exists():
        return
    before = _children()
    words = [f"run.seed={seed}", f"run.dir={folder}", *_SHARED, *changes]
    file = ROOT / "config" / "smollm2" / f"{recipe}.yaml"
    config = load(file, words)
    stages = [name for name, steps in (("sft", config.sft.steps), ("train", config.run.max_steps)) if steps]
    for stage in stages:
        subprocess.run([sys.executable, "-m", "rlinf.cli", stage, str(file), *words], cwd=ROOT, check=True)
    kept = folder / _CPU
    earlier = json.loads(kept.read_text()) if kept.exists() else 0.0
    kept.write_text(json.dumps(earlier + _children() - before))


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def row(seed: int, folder: Path) -> str:
    """One line of the table, from the run's metrics."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    evaluated = [line for line in lines if "eval/accuracy" in line]
    steps = [line for line in lines if "rollout/accuracy" in line]
    first, last = evaluated[0], evaluated[-1]
    shown = sum(line["step"] < 0 and "sft/loss" in line for line in lines)
    between = _share(next(line for line in evaluated if line["step"] == 0)) if shown else "none"
    cpu = json.loads((folder / _CPU).read_text())
    sampled = f"{steps[0]['rollout/accuracy']:.2f} to {steps[-1]['rollout/accuracy']:.2f}" if steps else "none"
    length = f"{first['eval/response_length']:.1f} to {last['eval/response_length']:.1f}"
    cells = (seed, shown, last["step"], _share(first), between, _share(last), sampled, length, f"{cpu:.0f}")
    return f"| {' | '.join(map(str, cells))} |"


def _share(line: dict[str, float]) -> str:
    low, high = line["eval/accuracy/ci_low"], line["eval/accuracy/ci_high"]
    return f"{line['eval/accuracy']:.3f} [{low:.3f}, {high:.3f}]"


def table(recipe: str, seeds: list[int], folder: Path, changes: list[str]) -> str:
    """The section of `benchmarks/results/` about a recipe."""
    rows = "\n".join(row(seed, folder / f"{recipe}_{seed}") for seed in seeds)
    return f"""### `config/smollm2/{" ".join((f"{recipe}.yaml", *changes))}`

Greedy accuracy on held-out tasks with 95% Wilson intervals, accuracy of the sampled responses of the first and the last
step, mean tokens of a greedy response; CPU-seconds of the whole command on one thread.

| seed | SFT steps | RL steps | before | after SFT | after | sampled | tokens | CPU-seconds |
|---|---|---|---|---|---|---|---|---|
{rows}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--recipe", default="word_problems")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "smollm2")
    parser.add_argument("--report", action="store_true", help="make no run: tell of those that are there")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="of the configuration, for all seeds")
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    if not options.report:
        for seed in seeds:
            train(options.recipe, seed, options.folder / f"{options.recipe}_{seed}", options.changes)
    text = table(options.recipe, seeds, options.folder, options.changes)
    print(text)
    if options.write:
        save(options.write, figures_of_table(text), intervals="95% Wilson")


if __name__ == "__main__":
    main()
