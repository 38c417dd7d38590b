"""Steps until a student has closed 80% of the gap to its teacher: on-policy distillation, GRPO, and both.

    python benchmarks/distillation.py [--seeds 0,1,2] [--arms opd,grpo,both] [--warm-up 150] [--steps 24] [--write]

The teacher is `config/distillation/teacher.yaml` (2.5 million parameters), trained where ``--teacher`` names none. The
students of a seed (one million parameters) share a supervised warm start of ``--warm-up`` steps, and are evaluated
every fourth step on the same 200 held-out sums; one process and one thread each. Finished runs are not made again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from records import add_output, figures_of_table, save

ROOT = Path(__file__).resolve().parent.parent
ARMS = {
    "opd": ("teacher alone (`opd`)", "algorithm.adv_type=opd"),
    "grpo": ("verifier alone (`grpo`)", "algorithm.adv_type=grpo", "teacher.path=null"),
    "both": ("both (`grpo`, `opd_coef: 0.2`)", "algorithm.adv_type=grpo", "algorithm.opd_coef=0.2"),
}
"""What a student learns from, in words, and the configuration's words for it."""
SHARED = (
    "cluster.backend=local",
    "cluster.threads_per_worker=1",
    "evaluation.size=200",
    "evaluation.every=4",
    "checkpoint.every=0",
    "logging.progress=plain",
    "logging.plain_every=8",
    "logging.tensorboard=false",
)
CLOSED = 0.8
"""The share of the gap that has to be closed."""


def train(file: Path, folder: Path, *words: str) -> None:
    """Trains unless ``folder`` has the finished run."""
    if not (folder / "summary.json").exists():
        command = [sys.executable, "-m", "rlinf.cli", "train", str(file), f"run.dir={folder}", *SHARED, *words]
        subprocess.run(command, cwd=ROOT, check=True)


def accuracies(folder: Path) -> dict[int, float]:
    """Step -> greedy accuracy on held-out tasks."""
    lines = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
    return {line["step"]: line["eval/accuracy"] for line in lines if "eval/accuracy" in line and line["step"] >= 0}


def steps_to(found: dict[int, float], goal: float) -> str:
    """The first evaluated step at the goal or above it."""
    return next((str(step) for step, accuracy in sorted(found.items()) if accuracy >= goal), "not reached")


def table(seeds: list[int], arms: list[str], folder: Path, teacher: float, warm_up: int) -> str:
    rows = []
    for seed in seeds:
        for arm in arms:
            found = accuracies(folder / f"student_{seed}_{arm}")
            start, last = found[0], found[max(found)]
            goal = start + CLOSED * (teacher - start)
            curve = ", ".join(f"{found[step]:.2f}" for step in sorted(found))
            rows.append(f"| {seed} | {ARMS[arm][0]} | {goal:.3f} | {steps_to(found, goal)} | {last:.3f} | {curve} |")
    body = "\n".join(rows)
    return f"""## On-policy distillation

`python benchmarks/distillation.py`: a student of one million parameters after {warm_up} supervised steps, its teacher
at {teacher:.3f}; greedy accuracy on 200 held-out sums; 256 responses a step, one process, one thread. The goal is
{CLOSED:.0%} of the way from the student's first accuracy to the teacher's.

| seed | learns from | goal | steps to it | at the end | greedy accuracy every fourth step |
| --- | --- | --- | --- | --- | --- |
{body}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--arms", default=",".join(ARMS), help="some of %(default)s")
    parser.add_argument("--warm-up", type=int, default=150)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--teacher", type=Path, help="a finished run of teacher.yaml; trained where there is none")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "distillation")
    add_output(parser, "distillation")
    options = parser.parse_args()
    recipes, folder = ROOT / "config" / "distillation", options.folder.absolute()
    teacher = (options.teacher or folder / "teacher").absolute()
    train(recipes / "teacher.yaml", teacher)
    policy = teacher / "policy"
    seeds, arms = [int(seed) for seed in options.seeds.split(",")], options.arms.split(",")
    for seed in seeds:
        for arm in arms:
            _, *words = ARMS[arm]
            train(
                recipes / "student.yaml",
                folder / f"student_{seed}_{arm}",
                f"run.seed={seed}",
                f"run.max_steps={options.steps}",
                f"policy.tokenizer.path={policy}",
                f"teacher.path={policy}",
                f"sft.steps={options.warm_up}",
                f"sft.cache={folder / 'warm_starts'}",
                *words,
            )
    found = accuracies(teacher)
    text = table(seeds, arms, folder, found[max(found)], options.warm_up)
    print(text)
    if options.write:
        save(options.write, figures_of_table(text, labels=2), intervals="")


if __name__ == "__main__":
    main()
