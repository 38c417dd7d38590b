"""Environment steps until a sparse reach task is solved: SAC alone, and with recorded demonstrations (RLPD).

    python benchmarks/prior_data.py --seeds 0 1 2 [--write]

Both are config/sim/reach_sac.yaml and differ in `algorithm.prior_data` and `policy.critic_layer_norm` alone. Solved is
the first evaluation whose greedy episodes end in success as often as ``--success``.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
from pathlib import Path

from records import Figure, add_output, save

from rlinf.cli import main as rlinf
from rlinf.config import load
from rlinf.train.run import run

RECIPE = Path(__file__).parents[1] / "config" / "sim" / "reach_sac.yaml"
QUIET = ["cluster.backend=local", "logging.progress=none", "logging.tensorboard=false", "checkpoint.export=false"]


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def steps_to(folder: Path, seed: int, success: float, keys: list[str]) -> tuple[int | None, float]:
    """(environment steps until solved, or None; best success)."""
    run(load(RECIPE, [*QUIET, f"run.dir={folder}", f"run.seed={seed}", *keys]), report=False)
    best = 0.0
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        found = json.loads(line)
        best = max(best, found.get("eval/success_at_end", 0.0))
        if best >= success:
            return int(found.get("rollout/env_steps_total", 0)), best
    return None, best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--success", type=float, default=0.9)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    add_output(parser, "robot_data")
    options = parser.parse_args()
    found = []
    names = {"rlpd": f"with {options.episodes} recorded episodes (RLPD)", "sac": "SAC alone"}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        data = folder / "reach"
        rlinf(["record", str(RECIPE), "--out", str(data), "--episodes", str(options.episodes), "--to-the-end"])
        prior = [f"algorithm.prior_data={data}", "policy.critic_layer_norm=true"]
        for seed in options.seeds:
            for name, keys in (("rlpd", [*prior, "run.max_steps=80"]), ("sac", [])):
                began = cpu_seconds()
                steps, best = steps_to(folder / f"{name}_{seed}", seed, options.success, [*keys, *options.overrides])
                spent = cpu_seconds() - began
                reached = f"{steps} steps to {options.success}, best {best:.2f}"
                print(f"seed {seed} {name}: {reached}, {spent:.0f} CPU-s", flush=True)
                remark = "" if steps is not None else f"not reached, best {best:.2f}"
                metric = f"{names[name]}, steps to {options.success:g}"
                found.append(Figure(f"seed {seed}", metric, steps, n=50, seeds=(seed,), remark=remark))
    if options.write:
        save(options.write, found, intervals="", keep_others=True)


if __name__ == "__main__":
    main()
