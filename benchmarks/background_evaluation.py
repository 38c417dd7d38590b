"""What `evaluation.background` saves: the same run on Ray twice, and the seconds of a step with its evaluation.

    python benchmarks/background_evaluation.py [--steps 10] [--rounds 3] [--write]

A policy of a million weights on sums, batches one ahead of the learner (`rollout.staleness: 1`), whose updates take
longer than collecting a batch, and an evaluation after every step. Learner and sampler have one thread each. The first
step and the last two do not count: workers warm up, and there is nothing left to collect or to evaluate in parallel.
The script fails if one number of an evaluation, or the last weights, differ between the two.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from records import Figure, add_output, save, spread

SETTINGS = (
    *("cluster.backend=ray", "logging.progress=none", "logging.tensorboard=false", "checkpoint.every=0"),
    *("rollout.staleness=1", "algorithm.adv_type=remax", "algorithm.loss_type=decoupled", "algorithm.group_size=4"),
    *("algorithm.update_epochs=2", "algorithm.entropy_bonus=0.001", "rollout.batch_size=32"),
    *("sft.steps=60", "evaluation.every=1"),
    *("evaluation.size=768", "checkpoint.export=false"),
)


def train(folder: Path, steps: int, background: bool) -> tuple[list[dict[str, float]], str]:
    """Run `rlinf train quickstart`; return its lines of metrics from step 0 on, and the digest of its weights."""
    command = [sys.executable, "-m", "rlinf.cli", "train", "math/quickstart", *SETTINGS]
    own = (f"run.dir={folder}", f"run.max_steps={steps}", f"evaluation.background={json.dumps(background)}")
    subprocess.run([*command, *own], check=True, stdout=subprocess.DEVNULL, timeout=600)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    summary = json.loads((folder / "summary.json").read_text())
    return [line for line in lines if line["step"] >= 0], summary["params_sha256"]


def seconds(lines: list[dict[str, float]], background: bool) -> float:
    """Return the mean seconds of a step with its evaluation, which in the background is a part of the next step."""
    counted = lines[2:-2]
    waited = sum(line["time/step_s"] + (0.0 if background else line["time/evaluation_s"]) for line in counted)
    return waited / len(counted)


def numbers(lines: list[dict[str, float]]) -> list[dict[str, float]]:
    """Return what the evaluations of each step measured."""
    return [{name: value for name, value in line.items() if name.startswith("eval/")} for line in lines]


def figures(steps: int, rounds: int) -> list[Figure]:
    """Return the figures of ``rounds`` pairs of runs."""
    waiting, meanwhile, hidden = [], [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as temporary:
            blocking, digest = train(Path(temporary) / "blocking", steps, False)
            later, other = train(Path(temporary) / "background", steps, True)
        assert numbers(blocking) == numbers(later), "evaluations differ"
        assert digest == other, "weights differ"
        waiting.append(seconds(blocking, False))
        meanwhile.append(seconds(later, True))
        counted = later[2:-2]
        shares = [line["time/evaluation_hidden_s"] / line["time/evaluation_s"] for line in counted]
        hidden.append(100 * sum(shares) / len(shares))
    found = []
    for case, values in (("waiting", waiting), ("evaluation.background", meanwhile)):
        value, interval = spread(values)
        found.append(Figure(case, "a step with its evaluation", value, "s", interval, n=rounds))
    value, interval = spread([100 * (1 - new / old) for old, new in zip(waiting, meanwhile, strict=True)])
    found.append(Figure("evaluation.background", "seconds saved", value, "%", interval, n=rounds))
    value, interval = spread(hidden)
    found.append(
        Figure("evaluation.background", "evaluation in parallel with the update", value, "%", interval, n=rounds)
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    add_output(parser, "background_evaluation")
    options = parser.parse_args()
    found = figures(options.steps, options.rounds)
    print(*found, sep="\n")
    if options.write:
        save(options.write, found, intervals="smallest to largest of the rounds")


if __name__ == "__main__":
    main()
