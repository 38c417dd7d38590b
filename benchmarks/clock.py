"""The clock of a rehearsal against ten runs of other sizes: `rlinf check --clock`.

    python benchmarks/clock.py [--runs 10] [--write]

Short runs at small sizes calibrate it (`rlinf/train/rehearsal/clock.py`). Ten runs of other widths, depths,
batches, lengths and passes are predicted, then made. Times are CPU-seconds of one thread, since other work shares the
machine.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from records import ROOT, Figure, add_output, save

from rlinf.config import load, load_mapping
from rlinf.config.record import written
from rlinf.train.rehearsal.clock import RunCost, StepPrices, measure, sized

RUNS: tuple[Mapping[str, int], ...] = (
    {"hidden": 96, "layers": 3, "prompts": 6, "tokens": 20, "epochs": 1},
    {"hidden": 192, "layers": 2, "prompts": 8, "tokens": 32, "epochs": 1},
    {"hidden": 192, "layers": 6, "prompts": 8, "tokens": 24, "epochs": 2},
    {"hidden": 256, "layers": 4, "prompts": 16, "tokens": 32, "epochs": 1},
    {"hidden": 384, "layers": 2, "prompts": 8, "tokens": 40, "epochs": 1},
    {"hidden": 384, "layers": 6, "prompts": 8, "tokens": 16, "epochs": 1},
    {"hidden": 128, "layers": 3, "prompts": 32, "tokens": 32, "epochs": 2},
    {"hidden": 512, "layers": 4, "prompts": 4, "tokens": 32, "epochs": 1},
    {"hidden": 64, "layers": 4, "prompts": 48, "tokens": 16, "epochs": 1},
    {"hidden": 256, "layers": 8, "prompts": 6, "tokens": 48, "epochs": 2},
)


def named(size: Mapping[str, int]) -> str:
    """Describe a size in a few words."""
    model = f"{size['hidden']} x {size['layers']}"
    return f"{model}, {size['prompts']} prompts, {size['tokens']} tokens, {size['epochs']} passes"


def figures(runs: int) -> list[Figure]:
    """Return prediction, measurement and error of each run; prints each as it comes."""
    config = load(ROOT / "config" / "math" / "quickstart.yaml", ["policy.tokenizer.vocab_size=600"])
    clock = StepPrices.calibrated(config)
    found, errors = [], []
    for size in RUNS[:runs]:
        predicted = clock.predict(load_mapping(written(config), overrides=sized(config, size)))
        made = measure(config, sized(config, size))
        for metric, unit, values in (
            ("CPU-seconds of a step", "s", (predicted.step_s, made.step_s)),
            ("memory", "MB", (predicted.memory_bytes / 1e6, made.memory_bytes / 1e6)),
        ):
            error = 100 * (values[0] / values[1] - 1)
            errors.append((metric, abs(error)))
            found.append(Figure(named(size), f"{metric}, measured", float(f"{values[1]:.3g}"), unit, n=1))
            found.append(Figure(named(size), f"{metric}, error", round(error, 1), "%", n=1))
        print(named(size), phases(predicted), phases(made), *(f"{one.value}" for one in found[-4:]), flush=True)
    for metric in dict.fromkeys(name for name, _ in errors):
        worst = max(error for name, error in errors if name == metric)
        within = sum(error <= 15 for name, error in errors if name == metric)
        found.append(Figure("all runs", f"{metric}, largest error", round(worst, 1), "%", n=runs))
        found.append(Figure("all runs", f"{metric}, within 15%", within, "runs", n=runs))
        print(metric, "largest error", f"{worst:.1f}%;", within, "of", runs, "within 15%", flush=True)
    return found


def phases(run: RunCost) -> str:
    """Write the CPU-seconds of the phases of a step."""
    return "+".join(f"{seconds:.2f}" for seconds in run.seconds.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=len(RUNS))
    add_output(parser, "clock")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    found = figures(options.runs)
    if options.write:
        save(options.write, found, intervals="one measurement")


if __name__ == "__main__":
    main()
