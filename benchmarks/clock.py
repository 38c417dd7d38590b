"""The clock of a rehearsal against runs of other sizes: `rlinf check --clock`.

    python benchmarks/clock.py [--set tuned|held-out] [--runs 10] [--cases FILE] [--write]

Each run is predicted from short runs with fewer layers and tokens (`rlinf/train/rehearsal/clock.py`), and made itself.
All take turns, step by step, so that other work on the machine slows prediction and measurement alike. Times are
CPU-seconds of one thread, the least of each phase over the steps of a run: other work only adds to them. The held-out
set took no part in the choice of the method.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

from records import ROOT, Figure, add_output, save

from rlinf.config import Config, load, load_mapping
from rlinf.config.record import written
from rlinf.train.rehearsal.clock import extrapolated, short_runs, shortened
from rlinf.train.rehearsal.short_runs import RunCost, ShortRuns

SETS: Mapping[str, tuple[Mapping[str, int], ...]] = {
    "tuned": (
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
    ),
    "held-out": (
        {"hidden": 160, "layers": 2, "prompts": 5, "tokens": 12, "epochs": 1},
        {"hidden": 160, "layers": 5, "prompts": 10, "tokens": 28, "epochs": 1},
        {"hidden": 224, "layers": 3, "prompts": 12, "tokens": 20, "epochs": 2},
        {"hidden": 320, "layers": 2, "prompts": 6, "tokens": 36, "epochs": 1},
        {"hidden": 96, "layers": 8, "prompts": 8, "tokens": 24, "epochs": 2},
        {"hidden": 448, "layers": 3, "prompts": 4, "tokens": 20, "epochs": 1},
        {"hidden": 128, "layers": 5, "prompts": 20, "tokens": 16, "epochs": 1},
        {"hidden": 64, "layers": 3, "prompts": 24, "tokens": 40, "epochs": 1},
        {"hidden": 288, "layers": 6, "prompts": 5, "tokens": 18, "epochs": 1},
        {"hidden": 192, "layers": 4, "prompts": 14, "tokens": 22, "epochs": 3},
    ),
}


def sized(config: Config, size: Mapping[str, int]) -> Config:
    """Return ``config`` with another width, depth, batch, length of a response and number of passes."""
    heads = max(2, size["hidden"] // 32)
    shape = {
        **dict(config.policy.architecture),
        **{"hidden_size": size["hidden"], "intermediate_size": 4 * size["hidden"], "num_hidden_layers": size["layers"]},
        **{"num_attention_heads": heads, "num_key_value_heads": heads},
    }
    keys = [
        f"policy.architecture={json.dumps(shape)}",
        f"rollout.batch_size={size['prompts']}",
        f"rollout.max_new_tokens={size['tokens']}",
        f"algorithm.update_epochs={size['epochs']}",
    ]
    return load_mapping(written(config), overrides=keys)


def named(size: Mapping[str, int]) -> str:
    """Describe a size in a few words."""
    passes = "1 pass" if size["epochs"] == 1 else f"{size['epochs']} passes"
    return f"{size['hidden']}x{size['layers']}, {size['prompts']} prompts, {size['tokens']} tokens, {passes}"


def compared(process: ShortRuns, config: Config) -> tuple[RunCost, RunCost]:
    """Return what a run of ``config`` was predicted to cost, and what it did."""
    runs = short_runs(config)
    *costs, made = process.measured([*(shortened(config, run) for run in runs), config])
    return extrapolated(config, runs, costs), made


def figures(group: str, cases: Mapping[str, tuple[RunCost, RunCost]]) -> list[Figure]:
    """Return each held-out run and the error of its prediction, and for a whole set how many are within 15%."""
    found, errors = [], []
    for name, (predicted, made) in cases.items():
        for metric, unit, values in (
            ("CPU-seconds of a step", "s", (predicted.step_s, made.step_s)),
            ("memory", "MB", (predicted.memory_bytes / 1e6, made.memory_bytes / 1e6)),
        ):
            error = 100 * (values[0] / values[1] - 1)
            errors.append((metric, abs(error)))
            if group == "held-out":
                found.append(Figure(name, f"{metric}, measured", float(f"{values[1]:.3g}"), unit, n=1))
                found.append(Figure(name, f"{metric}, error", round(error, 1), "%", n=1))
    for metric in dict.fromkeys(name for name, _ in errors):
        worst = max(error for name, error in errors if name == metric)
        within = sum(error <= 15 for name, error in errors if name == metric)
        found.append(
            Figure(f"all {len(cases)} {group}", f"{metric}, largest error", round(worst, 1), "%", n=len(cases))
        )
        found.append(Figure(f"all {len(cases)} {group}", f"{metric}, within 15%", within, "runs", n=len(cases)))
        print(group, metric, "largest error", f"{worst:.1f}%;", within, "of", len(cases), "within 15%", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=SETS, action="append", help="both if it is left out")
    parser.add_argument("--runs", type=int, default=10, help="of each set")
    parser.add_argument("--cases", type=Path, help="a file of results that goes on from where it ends")
    add_output(parser, "clock")
    options = parser.parse_args()
    # A small dataset: its making is no part of a step.
    config = load(
        ROOT / "config" / "math" / "quickstart.yaml", ["policy.tokenizer.vocab_size=600", "env.kwargs.size=300"]
    )
    kept = json.loads(options.cases.read_text()) if options.cases and options.cases.exists() else {}
    found = []
    with ShortRuns() as process:
        for group in options.set or SETS:
            cases = {}
            for size in SETS[group][: options.runs]:
                name = named(size)
                if name not in kept:
                    kept[name] = [vars(cost) for cost in compared(process, sized(config, size))]
                    if options.cases:
                        options.cases.write_text(json.dumps(kept))
                cases[name] = (RunCost(**kept[name][0]), RunCost(**kept[name][1]))
                print(name, *(line(cost) for cost in cases[name]), flush=True)
            found += figures(group, cases)
    if options.write:
        save(options.write, found, intervals="none: one run each, the least of three steps or more")


def line(cost: RunCost) -> str:
    """Write the CPU-seconds of the phases of a step, and the memory."""
    return f"{'+'.join(f'{seconds:.3f}' for seconds in cost.seconds.values())} s, {cost.memory_bytes / 1e6:.0f} MB"


if __name__ == "__main__":
    main()
