"""What a call of the sandbox costs: a short program, from its text to what it printed.

    python benchmarks/sandbox.py [--calls 30] [--rounds 5] [--write]

One call after another, then 16 threads at the same time; medians and ranges of the rounds. Other work on the machine
disturbs the fastest call least.
"""

from __future__ import annotations

import argparse
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from records import Figure, add_output, save, spread
from rlinf_envs.errors import SettingError
from rlinf_envs.sandbox.run import Sandbox
from rlinf_envs.sandbox.walls import KINDS

_PROGRAM = "def double(x):\n    return 2 * x\nassert double(2) == 4\nprint(double(21))\n"
_THREADS = 16
METRICS = {
    "fastest": "fastest call",
    "median": "median call",
    "slowest": "95th percentile",
    "side_by_side": f"{_THREADS} threads, time a call",
}
"""Field of :class:`Cost` -> name of the figure."""


@dataclass(frozen=True)
class Cost:
    """Of one call, in milliseconds."""

    fastest: float
    median: float
    slowest: float
    """Of 95 in a hundred calls."""
    side_by_side: float
    """Wall-clock time of all calls by their number, with :data:`_THREADS` threads."""


def measure(sandbox: Sandbox, calls: int) -> Cost:
    walls = []
    for _ in range(calls):
        began = time.perf_counter()
        outcome = sandbox.run(_PROGRAM)
        walls.append(time.perf_counter() - began)
        assert (outcome.status, outcome.output) == ("done", "42\n"), outcome
    began = time.perf_counter()
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(sandbox.run, [_PROGRAM] * calls))
    together = time.perf_counter() - began
    slowest = sorted(walls)[int(0.95 * calls)]
    return Cost(*(1e3 * value for value in (min(walls), statistics.median(walls), slowest, together / calls)))


def figures(calls: int, rounds: int) -> list[Figure]:
    """Return median and range of the rounds, for each kind of sandbox that this machine has."""
    found = []
    for kind in KINDS:
        try:
            costs = [measure(Sandbox(kind=kind), calls) for _ in range(rounds)]
        except SettingError as error:
            print(error)
            continue
        for name, metric in METRICS.items():
            value, interval = spread([getattr(cost, name) for cost in costs])
            found.append(Figure(kind, metric, value, "ms", interval, n=calls * rounds))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    add_output(parser, "sandbox")
    options = parser.parse_args()
    found = figures(options.calls, options.rounds)
    print(*found, sep="\n")
    if options.write:
        save(options.write, found, intervals="smallest to largest of the rounds")


if __name__ == "__main__":
    main()
