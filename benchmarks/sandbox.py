"""What a call of the sandbox costs: a short program, from its text to what it printed.

    python benchmarks/sandbox.py [--calls 100] [--write]

One call after another, and 16 threads that call at the same time. The fastest call is the one that other work on the
machine disturbed least.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rlinf_envs.errors import SettingError
from rlinf_envs.sandbox.run import Sandbox
from rlinf_envs.sandbox.walls import KINDS

RESULTS = Path(__file__).resolve().parent / "results" / "sandbox.md"
_PROGRAM = "def double(x):\n    return 2 * x\nassert double(2) == 4\nprint(double(21))\n"
_THREADS = 16


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


def table(calls: int) -> str:
    lines = [
        f"| walls | fastest call, ms | median | 95 of 100 within | ms a call, {_THREADS} side by side |",
        "|---|---|---|---|---|",
    ]
    for kind in KINDS:
        try:
            cost = measure(Sandbox(kind=kind), calls)
        except SettingError as error:
            print(error)
            continue
        lines.append(
            f"| {kind} | {cost.fastest:.0f} | {cost.median:.0f} | {cost.slowest:.0f} | {cost.side_by_side:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    text = table(options.calls)
    print(text)
    if options.write:
        RESULTS.write_text(
            "## The sandbox\n\n"
            f"`python benchmarks/sandbox.py --calls {options.calls} --write`: a program of four lines, from its text "
            f"to what it printed, at a load\nof {os.getloadavg()[0]:.0f} on two cores.\n\n{text}\n"
        )


if __name__ == "__main__":
    main()
