"""Transfer between six families of reasoning-gym: GRPO on one, accuracy on all, over seeds.

    python benchmarks/transfer.py [--seeds 0,1,2] [--out FOLDER] [--write] [KEY=VALUE ...]

`rlinf sft config/agents/families.yaml` makes the policy that every run starts from. A run is the recipe's GRPO with the
weight of all families but one at 0. Each leaves its accuracies in a JSON file of the folder, and what the folder holds
is not made again. Changes of accuracy are taken run by run; their intervals are over seeds. Answers that are right but
lack the mark are counted once, before: what GRPO can gain by the form alone.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from records import ROOT, Figure, add_output, save
from train_once import kept

from rlinf.config import load
from rlinf.data.messages import Metrics
from rlinf.train import evaluate_run, run
from rlinf.train.evaluation.intervals import mean_interval

RECIPE = ROOT / "config" / "agents" / "families.yaml"
TASKS = yaml.safe_load(RECIPE.read_text(encoding="utf-8"))["env"]["tasks"]
FAMILIES = tuple(str(task["name"]) for task in TASKS)
Accuracies = dict[str, float]
"""Of each family, on its held-out tasks."""


def trained(path: Path, seed: int, changes: Sequence[str]) -> Accuracies:
    """Train into ``path``, unless it holds that run whole; return the accuracies of the end."""

    def measure() -> Accuracies:
        quiet = ("cluster.backend=local", "logging.progress=none", "logging.tensorboard=false", "checkpoint.every=0")
        config = load(RECIPE, (f"run.dir={path}", f"run.seed={seed}", *quiet, *changes))
        return by_family(run(config, report=False).metrics)

    found: Accuracies = kept(path.with_suffix(".json"), measure)
    return found


def right_without_mark(path: Path) -> Accuracies:
    """Return the shares of responses of the run in ``path`` that are the right answer and nothing else."""
    plain = ("evaluation.env_kwargs.answer_format=plain", "evaluation.env_kwargs.demonstrations=null")
    file = path.with_name(f"{path.name}_unmarked.json")
    found: Accuracies = kept(file, lambda: by_family(evaluate_run(str(path), plain).metrics))
    return found


def by_family(metrics: Metrics) -> Accuracies:
    return {name: metrics[f"eval/accuracy/{name}"] for name in FAMILIES}


def on_one(family: str, start: Path) -> tuple[str, ...]:
    """Return the settings of GRPO on ``family`` alone from the policy of the run ``start``."""
    tasks = [{**task, "weight": int(task["name"] == family)} for task in TASKS]
    policy = (f"policy.path={start / 'policy'}", "policy.architecture=null", "sft.steps=0")
    return (*policy, "evaluation.at_start=false", f"env.tasks={json.dumps(tasks)}")


def figures(
    before: Accuracies,
    unmarked: Accuracies,
    after: Mapping[str, Sequence[Accuracies]],
    tasks: int,
    seeds: tuple[int, ...],
) -> list[Figure]:
    """Return a row a trained family, a column a graded one: the mean change, and its interval over seeds."""
    found = []
    for case, shares in (("accuracy before", before), ("right before, but unmarked", unmarked)):
        found += [Figure(case, name, round(shares[name], 3), n=tasks) for name in FAMILIES]
    for family, runs in after.items():
        for name in FAMILIES:
            changes = [run[name] - before[name] for run in runs]
            low, high = mean_interval(changes)
            mean, interval = round(sum(changes) / len(changes), 3), (round(low, 3), round(high, 3))
            found.append(Figure(f"trained on {family}", name, mean, "", interval, tasks, seeds, change=True))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "transfer")
    add_output(parser, "transfer")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="of the configuration, for all runs")
    options = parser.parse_args()
    seeds = tuple(map(int, options.seeds.split(",")))
    options.out.mkdir(parents=True, exist_ok=True)
    before = trained(options.out / "warm", 0, ("run.max_steps=0", *options.changes))
    unmarked = right_without_mark(options.out / "warm")
    print("warm start", before, unmarked, flush=True)
    after: dict[str, list[Accuracies]] = {name: [] for name in FAMILIES}
    for seed in seeds:
        for name in FAMILIES:
            changes = (*on_one(name, options.out / "warm"), *options.changes)
            after[name].append(trained(options.out / f"{name}_{seed}", seed, changes))
            print(name, seed, after[name][-1], flush=True)
    tasks = load(RECIPE, options.changes).evaluation.size // len(FAMILIES)
    found = figures(before, unmarked, after, tasks, seeds)
    if options.write:
        save(options.write, found, intervals="95% Student over seeds")


if __name__ == "__main__":
    main()
