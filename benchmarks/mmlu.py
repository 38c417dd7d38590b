"""A public set in its own format before and after training: MMLU's elementary mathematics, without and with examples.

    make models/smollm2 build/mmlu
    python -m venv venvs/lm-eval && venvs/lm-eval/bin/pip install "lm-eval[hf]==0.4.13"
    python benchmarks/mmlu.py --lm-eval venvs/lm-eval/bin/lm_eval [--tasks 60] [--sft-steps 12] [--write]

The model as published, and after `rlinf train config/smollm2/mmlu.yaml`, without its GRPO and whole. Greedy answers
are also graded by lm-eval on the same prompts, in float32. What the folder holds whole, runs and gradings, is not made
again; ``--stages`` and ``--shots`` do a part of it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from lm_eval_program import LmTask, exact_matches
from records import ROOT, Figure, add_output, save
from train_once import kept, train_once

from rlinf.cluster import connect
from rlinf.config import load
from rlinf.data.messages import Metrics
from rlinf.train.assemble.setup import ResolvedRun
from rlinf.train.assemble.text import build_text_evaluator
from rlinf.train.evaluation.intervals import wilson

RECIPE = ROOT / "config" / "smollm2" / "mmlu.yaml"
DATA = {"no examples": ROOT / "build" / "mmlu", "3 examples": ROOT / "build" / "mmlu" / "few_shot"}
MODEL = ROOT / "models" / "smollm2"
SAMPLES = 8
SEED = 0
LETTER = LmTask("letters", "{{prompt}}", "{{answer}}", pattern=r"\b([A-D])\b", tokens=2)


def measured(path: Path, stage: str, shots: str, changes: tuple[str, ...], tasks: int, lm_eval: str) -> list[Figure]:
    """Train with ``changes`` into ``path``, if there are any, and grade the policy; what the folder holds stays.

    Returns:
        Greedy accuracy, that of lm-eval, and those of several samples: avg@k, pass@k, maj@k.
    """
    path.mkdir(parents=True, exist_ok=True)
    if changes and not (path / "policy").exists():
        train_once(RECIPE, path, SEED, (*changes, "evaluation.size=0", "checkpoint.every=0"))
    policy = path / "policy" if changes else MODEL
    data, case, begin = DATA[shots] / "eval.jsonl", f"{stage}, {shots}", f"{DATA[shots].name}_{tasks}"

    def theirs() -> float:
        with tempfile.TemporaryDirectory() as folder:
            rows = Path(folder) / "rows.jsonl"
            rows.write_text("\n".join(data.read_text().splitlines()[:tasks]) + "\n")
            matches = exact_matches(LETTER, policy, rows, Path(folder), lm_eval)
            return sum(matches) / len(matches)

    def ours(samples: int, temperature: float) -> Metrics:
        changes = (f"evaluation.samples={samples}", f"evaluation.temperature={temperature}")
        return evaluated(policy, data, changes, tasks)

    greedy: Metrics = kept(path / f"{begin}_greedy.json", lambda: ours(1, 0.0))
    several: Metrics = kept(path / f"{begin}_sampled.json", lambda: ours(SAMPLES, 1.0))
    shares = {
        "greedy accuracy": greedy["eval/accuracy"],
        "greedy accuracy, lm-eval": kept(path / f"{begin}_lm_eval.json", theirs),
        **{f"{name}@{SAMPLES}": several[f"eval/{name}@{SAMPLES}"] for name in ("avg", "pass", "maj")},
    }
    found = []
    for name, share in shares.items():
        low, high = wilson(share * tasks, tasks)
        seeds = (SEED,) if changes else None
        found.append(Figure(case, name, round(share, 3), "", (round(low, 3), round(high, 3)), tasks, seeds))
    print(*found, sep="\n", flush=True)
    return found


def evaluated(policy: Path, data: Path, changes: tuple[str, ...], tasks: int) -> Metrics:
    """Evaluate a model's folder on the recipe's environment, without a run."""
    keys = [f"policy.path={policy}", f"evaluation.env_kwargs.path={data}", f"evaluation.size={tasks}"]
    config = load(RECIPE, [*keys, "data.max_prompt_length=1024", "cluster.backend=local", *changes])
    setup = ResolvedRun.of(config)
    with tempfile.TemporaryDirectory() as scratch, connect(setup.cluster) as cluster:
        return build_text_evaluator(setup, cluster, Path(scratch)).evaluate().metrics


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lm-eval", required=True, help="lm-eval's program")
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--sft-steps", type=int, default=12)
    parser.add_argument("--stages", default="0,1,2", help="0: as published, 1: SFT, 2: SFT and GRPO")
    parser.add_argument("--shots", default=",".join(DATA), help=f"some of {', '.join(DATA)}")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "mmlu")
    add_output(parser, "mmlu")
    options = parser.parse_args()
    sft = f"sft.steps={options.sft_steps}"
    stages: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("as published", ()),
        (f"{options.sft_steps} steps of SFT", (sft, "run.max_steps=0")),
        (f"{options.sft_steps} steps of SFT, 8 of GRPO", (sft,)),
    )
    found: list[Figure] = []
    for number in map(int, options.stages.split(",")):
        for shots in options.shots.split(","):
            stage, changes = stages[number]
            found += measured(options.folder / str(number), stage, shots, changes, options.tasks, options.lm_eval)
    if options.write:
        save(options.write, found, intervals="95% Wilson")


if __name__ == "__main__":
    main()
