"""A public set in its own format before and after training: MMLU's elementary mathematics, without and with examples.

    make models/smollm2 build/mmlu
    python -m venv venvs/lm-eval && venvs/lm-eval/bin/pip install "lm-eval[hf]==0.4.13"
    python benchmarks/mmlu.py --lm-eval venvs/lm-eval/bin/lm_eval [--tasks 100] [--write]

`rlinf train config/smollm2/mmlu.yaml` without any step is the model as published. Greedy answers are also graded by
lm-eval on the same prompts, in float32. Runs that the folder holds whole are not made again.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from lm_eval_program import LmTask, exact_matches
from records import ROOT, Figure, add_output, save
from train_once import kept, train_once

from rlinf.train import evaluate_run
from rlinf.train.evaluation.intervals import wilson

RECIPE = ROOT / "config" / "smollm2" / "mmlu.yaml"
DATA = {"no examples": ROOT / "build" / "mmlu", "3 examples": ROOT / "build" / "mmlu" / "few_shot"}
SAMPLES = 8
LETTER = LmTask("letters", "{{prompt}}", "{{answer}}", pattern=r"\b([A-D])\b", tokens=2)


def measured(path: Path, stage: str, changes: tuple[str, ...], tasks: int, lm_eval: str) -> list[Figure]:
    """Train into ``path`` and grade its policy, unless the folder holds the figures; return them."""

    def measure() -> list[dict[str, Any]]:
        train_once(RECIPE, path, 0, (*changes, "evaluation.size=0"))
        return [vars(figure) for shots in DATA for figure in graded(path, stage, shots, tasks, lm_eval)]

    return [Figure(**one) for one in kept(path / "measured.json", measure)]


def graded(path: Path, stage: str, shots: str, tasks: int, lm_eval: str) -> list[Figure]:
    """Return greedy accuracy, that of lm-eval, and pass@k and maj@k of sampled answers."""
    data, case = DATA[shots] / "eval.jsonl", f"{stage}, {shots}"
    keys = [f"evaluation.env_kwargs.path={data}", "data.max_prompt_length=1024", f"evaluation.size={tasks}"]
    greedy = evaluate_run(str(path), [*keys, "evaluation.samples=1", "evaluation.temperature=0"]).metrics
    sampled = [f"evaluation.samples={SAMPLES}", "evaluation.temperature=1"]
    several = evaluate_run(str(path), [*keys, *sampled]).metrics
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.jsonl"
        rows.write_text("\n".join(data.read_text().splitlines()[:tasks]) + "\n")
        theirs = exact_matches(LETTER, path / "policy", rows, Path(folder), lm_eval)
    found = [Figure(case, "greedy accuracy", *_share(greedy["eval/accuracy"], tasks), tasks)]
    found.append(Figure(case, "greedy accuracy, lm-eval", *_share(sum(theirs) / len(theirs), tasks), tasks))
    for name in (f"avg@{SAMPLES}", f"maj@{SAMPLES}", f"pass@{SAMPLES}"):
        if f"eval/{name}" in several:
            found.append(Figure(case, name, *_share(several[f"eval/{name}"], tasks), tasks))
    print(*found, sep="\n", flush=True)
    return found


def _share(rate: float, count: int) -> tuple[float, str, tuple[float, float]]:
    low, high = wilson(rate * count, count)
    return round(rate, 3), "", (round(low, 3), round(high, 3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lm-eval", required=True, help="lm-eval's program")
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "mmlu")
    add_output(parser, "mmlu")
    options = parser.parse_args()
    stages = {"as published": ("sft.steps=0", "run.max_steps=0"), "SFT": ("run.max_steps=0",), "SFT and GRPO": ()}
    found: list[Figure] = []
    for number, (stage, changes) in enumerate(stages.items()):
        found += measured(options.folder / str(number), stage, changes, options.tasks, options.lm_eval)
    if options.write:
        save(options.write, found, intervals="95% Wilson")


if __name__ == "__main__":
    main()
