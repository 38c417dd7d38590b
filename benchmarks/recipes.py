"""The recipes of ``config/math/`` side by side: accuracy after the same number of generated tokens.

    python benchmarks/recipes.py [--seeds 0,1,2] [--recipes grpo,ppo] [--tokens 24000] [--folder FOLDER] [--write]

The quickstart's supervised warm start runs once, and every run goes on from the policy it left: seeds differ in the
tasks they meet, in what is sampled and in the order of minibatches. A run is stopped after the step with which it comes
nearest to the token budget; tokens of responses that are thrown away (dynamic sampling) count. Runs that the folder
already holds are not made again, so a second call completes a table; ``--report`` makes none.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from rlinf.config import load
from rlinf.train import run, run_sft

ROOT = Path(__file__).resolve().parent.parent
RECIPES = ROOT / "config" / "math"
RESULTS = ROOT / "benchmarks" / "results" / "recipes.md"
ALL = (
    *("grpo", "grpo_process", "dr_grpo", "dapo", "gspo", "cispo"),
    *("rloo", "reinforce_pp", "reinforce_pp_baseline", "ppo"),
)
FIRST_STEPS = 4
"""After so many steps the tokens of a step are known well enough to plan the rest."""
_T95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""Student's two-sided 95% quantile by the number of values."""


@dataclass(frozen=True)
class Measured:
    """One run."""

    recipe: str
    seed: int
    before: float
    after: float
    tokens: float
    steps: int
    seconds: float
    """Of training steps alone, without evaluations."""
    length: float
    """Mean tokens of a greedy response at the end."""


SHARED = ("cluster.backend=local", "logging.progress=none", "logging.tensorboard=false", "checkpoint.every=0")


def warm_start(steps: int, folder: Path) -> None:
    """Leaves the policy that all runs start from in ``folder/warm/policy``."""
    path = folder / "warm"
    if not (path / "policy").exists():
        overrides = (f"run.dir={path}", f"sft.steps={steps}", *SHARED)
        run_sft(load(RECIPES / "quickstart.yaml", overrides))


def measure(recipe: str, seed: int, policy: Path, budget: int, folder: Path) -> Measured:
    """Trains from ``policy`` until the tokens are spent."""
    path = folder / f"{recipe}_{seed}"
    kept = path / "measured.json"
    if kept.exists():
        return Measured(**json.loads(kept.read_text()))
    start = (f"policy.path={policy}", "policy.architecture=null", "sft.steps=0")
    overrides = (
        f"run.dir={path}",
        f"run.seed={seed}",
        *start,
        "evaluation.every=0",
        "checkpoint.export=false",
        *SHARED,
    )
    steps = FIRST_STEPS
    while True:
        run(load(RECIPES / f"{recipe}.yaml", (*overrides, f"run.max_steps={steps}")), report=False)
        lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        trained = [line for line in lines if "rollout/tokens" in line]
        spent = sum(line["rollout/tokens"] for line in trained)
        further = round((budget - spent) / statistics.mean(line["rollout/tokens"] for line in trained[-FIRST_STEPS:]))
        if further < 1:
            break
        steps += further
    summary = json.loads((path / "summary.json").read_text())
    measured = Measured(
        recipe,
        seed,
        before=summary["initial_metrics"]["eval/accuracy"],
        after=summary["metrics"]["eval/accuracy"],
        tokens=spent,
        steps=len(trained),
        seconds=sum(line["time/step_s"] for line in trained),
        length=summary["metrics"]["eval/response_length"],
    )
    kept.write_text(json.dumps(asdict(measured)))
    return measured


def interval(values: Sequence[float]) -> str:
    """Mean and 95% interval (Student) over seeds.

    >>> interval([0.5, 0.6, 0.7])
    '60.0% ± 24.8'
    """
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:.1%} (one seed)"
    half = _T95[len(values)] * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:.1%} ± {100 * half:.1f}"


def table(runs: Sequence[Measured]) -> str:
    """A Markdown table, the best first."""
    by_recipe = {recipe: [run for run in runs if run.recipe == recipe] for recipe in ALL}
    found = {recipe: rows for recipe, rows in by_recipe.items() if rows}
    order = sorted(found, key=lambda recipe: -statistics.mean(run.after for run in found[recipe]))
    lines = [
        "| recipe | seeds | before | after | tokens | steps | seconds | greedy length |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for recipe in order:
        rows = found[recipe]
        lines.append(
            f"| `{recipe}` | {len(rows)} | {interval([run.before for run in rows])} "
            f"| {interval([run.after for run in rows])} | {_mean(rows, 'tokens'):,.0f} | {_mean(rows, 'steps'):.0f} "
            f"| {_mean(rows, 'seconds'):.0f} | {_mean(rows, 'length'):.1f} |"
        )
    return "\n".join(lines)


def _mean(rows: Sequence[Measured], name: str) -> float:
    return statistics.mean(getattr(run, name) for run in rows)


def supervision(runs: Sequence[Measured]) -> str:
    """Process against outcome supervision, seed by seed: they differ in nothing else."""
    after = {(run.recipe, run.seed): run.after for run in runs}
    seeds = sorted(seed for recipe, seed in after if recipe == "grpo" and ("grpo_process", seed) in after)
    if len(seeds) < 2:
        return "Process against outcome supervision: measured on fewer than two seeds, so nothing is said of it."
    gains = [after["grpo_process", seed] - after["grpo", seed] for seed in seeds]
    half = _T95[len(seeds)] * statistics.stdev(gains) / len(seeds) ** 0.5
    mean = statistics.mean(gains)
    verdict = "no difference can be told" if abs(mean) <= half else ("better" if mean > 0 else "worse")
    return (
        f"Process supervision (`grpo_process`) minus outcome supervision (`grpo`), paired by seed: {100 * mean:+.1f} "
        f"points ± {100 * half:.1f} at the same budget ({verdict})."
    )


def write_section(runs: Sequence[Measured], policy: Path, *, warm_steps: int, budget: int) -> None:
    """The section of ``benchmarks/RESULTS.md`` about recipes; ``policy`` is what all runs started from."""
    model = json.loads((policy / "config.json").read_text())
    size = f"{model['num_hidden_layers']} layers of width {model['hidden_size']}"
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(
        "## Recipes\n\n"
        "`python benchmarks/recipes.py --write`: greedy accuracy on 300 held-out tasks (sums and differences of three "
        f"digits)\nafter about {budget:,} generated tokens; a run stops after a whole step, so the tokens spent "
        f"differ.\nAll start from the same policy ({size}, {warm_steps} supervised steps): it knows the sums, "
        "but more than half\nof what it was shown stops before the answer, and so does its greedy response. Mean over "
        "seeds with the 95%\ninterval (Student); where intervals overlap, no order is claimed. Seconds are those of "
        "training steps, on one\nthread of a machine that had other work to do: compare them with care.\n\n"
        + table(runs)
        + "\n\n"
        + supervision(runs)
        + "\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--recipes", default=",".join(ALL))
    parser.add_argument("--tokens", type=int, default=24_000, help="generated tokens of each run")
    parser.add_argument("--warm-steps", type=int, default=350)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "recipes")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.relative_to(ROOT)}")
    parser.add_argument("--report", action="store_true", help="only tell what the folder holds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    policy = options.folder / "warm" / "policy"
    if not options.report:
        warm_start(options.warm_steps, options.folder)
        for seed in (int(text) for text in options.seeds.split(",")):
            for recipe in options.recipes.split(","):
                print(measure(recipe, seed, policy, options.tokens, options.folder), flush=True)
    runs = [Measured(**json.loads(path.read_text())) for path in sorted(options.folder.glob("*/measured.json"))]
    print(table(runs), supervision(runs), sep="\n\n")
    if options.write:
        write_section(runs, policy, warm_steps=options.warm_steps, budget=options.tokens)


if __name__ == "__main__":
    main()
