"""What six learning rates cost on one base model (`share_base`), next to one run alone: CPU-seconds and memory.

    python benchmarks/shared_base.py [--model quickstart|smollm2] [--rates 6] [--steps 8] [--write]

The quickstart's model with low-rank adapters, warmed up, trained for a few steps and evaluated before and after; or
SmolLM2 with its recipe's own adapters, without a warm start. The run alone is `rlinf train` in one process
(`cluster.backend: local`), as a trial has it. Memory is the highest sum of the resident sizes of all processes of a
command. The script fails if the weights of the trial with the first learning rate, or its evaluations, differ from
those of the run alone.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from records import Figure, add_output, save

RATES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
SHARED_SETTINGS = {
    "cluster.backend": "local",
    "checkpoint.every": 0,
    "logging.tensorboard": False,
}
# The recipe of each model, and what is set in it.
MODELS: dict[str, tuple[str, dict[str, object]]] = {
    "quickstart": (
        "math/quickstart",
        {
            "policy.lora.rank": 16,
            "evaluation.size": 256,
            "sft.steps": 60,
            # Answers are hardly ever right so early: a reward of lengths gives every group a gradient.
            "env.kwargs.reward": {"length": {"weight": 1.0, "target": 5, "slack": 100}},
        },
    ),
    "smollm2": ("smollm2/lora", {}),
}


@dataclass(frozen=True)
class Cost:
    """Of a command with all of its processes."""

    cpu_s: float
    memory_mb: float


def measured(command: Sequence[str]) -> Cost:
    """Run a command; its output is shown if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        most = 0.0
        while process.poll() is None:
            most = max(most, resident_mb(process.pid))
            time.sleep(0.1)
        output.seek(0)
        assert process.returncode == 0, output.read()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, most)


def resident_mb(root: int) -> float:
    """Sum the resident memory of a process and its descendants."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid=,rss="], capture_output=True, text=True, check=True).stdout
    rows = [tuple(map(int, line.split())) for line in listed.splitlines()]
    family = {root}
    for pid, parent, _ in sorted(rows):
        if parent in family:
            family.add(pid)
    return sum(size for pid, _, size in rows if pid in family) / 1024


def figures(model: str, rates: int, steps: int) -> list[Figure]:
    """Return the costs of one run, of the sweep, and of one by the other."""
    base, own_settings = MODELS[model]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        settings = {**SHARED_SETTINGS, **own_settings, "run.max_steps": steps}
        given = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
        rlinf = [sys.executable, "-m", "rlinf.cli"]
        own = [f"learner.optimizer.lr={RATES[0]}", f"run.dir={folder / 'alone'}", "logging.progress=plain"]
        alone = measured([*rlinf, "train", base, *given, *own])
        sweep = {
            "base": base,
            "name": "rates",
            "dir": str(folder / "sweep"),
            "share_base": True,
            "set": settings,
            "space": {"learner.optimizer.lr": {"grid": list(RATES[:rates])}},
        }
        (folder / "rates.yaml").write_text(yaml.safe_dump(sweep))
        together = measured([*rlinf, "sweep", str(folder / "rates.yaml")])
        trial = sorted((folder / "sweep" / "trials").iterdir())[0] / "run"
        for name in ("params_sha256", "metrics", "initial_metrics"):
            one, other = (_summary(path)[name] for path in (folder / "alone", trial))
            assert _timeless(one) == _timeless(other), f"{name} differs from the run alone"
        digests = {_summary(path / "run")["params_sha256"] for path in (folder / "sweep" / "trials").iterdir()}
        assert len(digests) == rates, "learning rates made no difference: nothing was learned"
    costs = {"one run": alone, f"{rates} together": together}
    found = [
        Figure(f"{model}: {case}", metric, round(value, 1), unit, n=1)
        for case, cost in costs.items()
        for metric, value, unit in (("CPU-seconds", cost.cpu_s, "s"), ("memory", cost.memory_mb, "MB"))
    ]
    for metric, ratio in (
        ("CPU-seconds", together.cpu_s / alone.cpu_s),
        ("memory", together.memory_mb / alone.memory_mb),
    ):
        found.append(Figure(f"{model}: ratio", metric, round(ratio, 2), "x", n=1))
    return found


def _summary(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "summary.json").read_text())
    return found


def _timeless(value: object) -> object:
    """Return metrics without those of time."""
    return {k: v for k, v in value.items() if not k.startswith("time/")} if isinstance(value, dict) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(MODELS), default="quickstart")
    parser.add_argument("--rates", type=int, default=6)
    parser.add_argument("--steps", type=int, default=8)
    add_output(parser, "shared_base")
    options = parser.parse_args()
    found = figures(options.model, options.rates, options.steps)
    print(*found, sep="\n")
    if options.write:
        save(options.write, found, intervals="one measurement", keep_others=True)


if __name__ == "__main__":
    main()
