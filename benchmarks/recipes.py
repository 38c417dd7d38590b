"""The recipes of ``config/math/`` side by side: accuracy after the same number of generated tokens.

    python benchmarks/recipes.py [--seeds 0,1,2] [--recipes grpo,ppo] [--tokens 24000,72000] [--folder FOLDER] [--write]

The quickstart's supervised warm start runs once for each seed, and every recipe goes on from the policy that the seed's
warm start left: differences between recipes can be taken pair by pair. A run is evaluated after the step with which it
comes nearest to each of the token budgets; tokens of responses that are thrown away (dynamic sampling) count. Runs that
the folder already holds are not made again, so a second call completes a table; ``--report`` makes none.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from records import add_output, figures_of_table, save

from rlinf.config import load
from rlinf.train import run, run_sft

ROOT = Path(__file__).resolve().parent.parent
RECIPES = ROOT / "config" / "math"
ALL = (
    *("grpo", "grpo_process", "dr_grpo", "dapo", "gspo", "cispo"),
    *("rloo", "maxrl", "reinforce_pp", "reinforce_pp_baseline", "ppo"),
)
FIRST_STEPS = 4
"""Steps after which the tokens of a step are known well enough to plan the rest."""
T95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""Student's two-sided 95% quantile by the number of values."""


@dataclass(frozen=True)
class Measured:
    """One run, as far as one of the budgets went."""

    recipe: str
    seed: int
    budget: int
    before: float
    after: float
    tokens: float
    steps: int
    seconds: float
    """Of training steps alone, without evaluations."""
    cpu_seconds: float
    """Of this process, evaluations included, since the budget before."""
    length: float
    """Mean tokens of a greedy response at the end."""


SHARED = ("cluster.backend=local", "logging.progress=none", "logging.tensorboard=false", "checkpoint.every=0")

# As in the measurements so far; the quickstart has since found smaller batches that learn faster.
WARM_START = ("sft.batch_size=64", "sft.lr=3e-3")


def warm_start(steps: int, seed: int, folder: Path) -> Path:
    """The policy that all runs of a seed start from."""
    path = folder / f"warm_{seed}"
    if not (path / "policy").exists():
        overrides = (f"run.dir={path}", f"run.seed={seed}", f"sft.steps={steps}", *WARM_START, *SHARED)
        run_sft(load(RECIPES / "quickstart.yaml", overrides))
    return path / "policy"


def measure(recipe: str, seed: int, policy: Path, budget: int, folder: Path) -> Measured:
    """Trains from ``policy``, or goes on from a smaller budget, until the tokens are spent."""
    path = folder / f"{recipe}_{seed}"
    kept = path / f"measured_{budget}.json"
    if kept.exists():
        return Measured(**json.loads(kept.read_text()))
    began = time.process_time()
    start = (f"policy.path={policy}", "policy.architecture=null", "sft.steps=0")
    overrides = (f"run.dir={path}", f"run.seed={seed}", *start, "evaluation.every=0", *SHARED)
    trained = _steps_of(path)
    while True:
        spent = sum(line["rollout/tokens"] for line in trained)
        usual = statistics.mean(line["rollout/tokens"] for line in trained[-FIRST_STEPS:]) if trained else 0.0
        further = round((budget - spent) / usual) if trained else FIRST_STEPS
        if further < 1:
            break
        steps = len(trained) + further
        run(load(RECIPES / f"{recipe}.yaml", (*overrides, f"run.max_steps={steps}")), report=False)
        trained = _steps_of(path)
    summary = json.loads((path / "summary.json").read_text())
    measured = Measured(
        recipe,
        seed,
        budget,
        before=summary["initial_metrics"]["eval/accuracy"],
        after=summary["metrics"]["eval/accuracy"],
        tokens=spent,
        steps=len(trained),
        seconds=sum(line["time/step_s"] for line in trained),
        cpu_seconds=time.process_time() - began,
        length=summary["metrics"]["eval/response_length"],
    )
    kept.write_text(json.dumps(asdict(measured)))
    return measured


def _steps_of(path: Path) -> list[dict[str, float]]:
    """The metrics of a run's training steps so far."""
    if not (path / "metrics.jsonl").exists():
        return []
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "rollout/tokens" in line]


def interval(values: Sequence[float]) -> str:
    """Mean and 95% interval (Student) over seeds.

    >>> interval([0.5, 0.6, 0.7])
    '60.0% ± 24.8'
    """
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:.1%} (one seed)"
    half = T95[len(values)] * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:.1%} ± {100 * half:.1f}"


def table(runs: Sequence[Measured]) -> str:
    """A Markdown table, the best at the largest budget first."""
    budgets = sorted({run.budget for run in runs})
    by_recipe = {recipe: [run for run in runs if run.recipe == recipe] for recipe in ALL}
    last = {recipe: [run for run in rows if run.budget == budgets[-1]] for recipe, rows in by_recipe.items()}
    order = sorted((name for name in ALL if last[name]), key=lambda name: -_mean(last[name], "after"))
    columns = "".join(f" at {budget:,} |" for budget in budgets)
    lines = [
        f"| recipe | seeds | before |{columns} tokens | steps | seconds | greedy length |",
        "|---" * (7 + len(budgets)) + "|",
    ]
    for recipe in order:
        rows = last[recipe]
        cells = [interval([run.after for run in by_recipe[recipe] if run.budget == budget]) for budget in budgets]
        lines.append(
            f"| `{recipe}` | {len(rows)} | {interval([run.before for run in rows])} | {' | '.join(cells)} "
            f"| {_mean(rows, 'tokens'):,.0f} | {_mean(rows, 'steps'):.0f} | {_mean(rows, 'seconds'):.0f} "
            f"| {_mean(rows, 'length'):.1f} |"
        )
    return "\n".join(lines)


def _mean(rows: Sequence[Measured], name: str) -> float:
    return statistics.mean(getattr(run, name) for run in rows)


def differences(runs: Sequence[Measured], budget: int) -> str:
    """Every recipe minus grpo, seed by seed from the same start: which of them can be distinguished from it."""
    after = {(run.recipe, run.seed): run.after for run in runs if run.budget == budget}
    lines = []
    for recipe in ALL:
        seeds = sorted(seed for name, seed in after if name == recipe and ("grpo", seed) in after)
        if recipe == "grpo" or len(seeds) < 2:
            continue
        gains = [after[recipe, seed] - after["grpo", seed] for seed in seeds]
        mean, half = statistics.mean(gains), T95[len(seeds)] * statistics.stdev(gains) / len(seeds) ** 0.5
        verdict = "cannot be distinguished" if abs(mean) <= half else ("better" if mean > 0 else "worse")
        lines.append(f"| `{recipe}` | {100 * mean:+.1f} ± {100 * half:.1f} | {verdict} |")
    return "\n".join([f"| against `grpo` at {budget:,} tokens | points, paired by seed | |", "|---|---|---|", *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--recipes", default=",".join(ALL))
    parser.add_argument("--tokens", default="24000,72000", help="budgets of generated tokens")
    parser.add_argument("--warm-steps", type=int, default=350)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "recipes")
    add_output(parser, "recipes")
    parser.add_argument("--report", action="store_true", help="only tell what the folder holds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    budgets = [int(text) for text in options.tokens.split(",")]
    seeds = [int(text) for text in options.seeds.split(",")]
    if not options.report:
        for seed in seeds:
            policy = warm_start(options.warm_steps, seed, options.folder)
            for recipe in options.recipes.split(","):
                for budget in sorted(budgets):
                    print(measure(recipe, seed, policy, budget, options.folder), flush=True)
    found = [Measured(**json.loads(path.read_text())) for path in sorted(options.folder.glob("*/measured_*.json"))]
    runs = [run for run in found if run.budget in budgets]
    text = "\n\n".join([table(runs), *(differences(runs, budget) for budget in budgets)])
    print(text)
    if options.write:
        save(options.write, figures_of_table(text), intervals="95% Student over seeds")


if __name__ == "__main__":
    main()
