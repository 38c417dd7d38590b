"""Run the short benchmarks and print what moved beyond noise: python benchmarks/short.py [NAME ...].

Each writes its record to ``build/benchmarks/``. A figure moved if its new interval does not overlap that of the
committed record; a figure without an interval is shown with its change, since it cannot be judged. Nothing committed
changes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from records import RESULTS, ROOT, Figure, Record, load

FRESH = ROOT / "build" / "benchmarks"
BUDGET_S = 1200.0


@dataclass(frozen=True)
class Short:
    """A benchmark that takes minutes."""

    script: str
    options: tuple[str, ...] = ()
    limit_s: float = 240.0


SHORT = {
    "sandbox": Short("sandbox.py"),
    "isolation": Short("isolation.py"),
    "driver": Short(
        "driver.py",
        ("--shapes", "256x32", "4096x32", "8192x8192", "--ranks", "1", "64", "--sample", "64", "--repeats", "3"),
    ),
    "generation": Short(
        "generation.py",
        ("--repeats", "3", "--sizes", "1m", "--engines", "hf,generate"),
        limit_s=300.0,
    ),
    "weight_update": Short("weight_update.py", ("--repeats", "5", "--sizes", "30m", "--samplers", "hf"), limit_s=300.0),
}
"""Name of the record -> what makes it again."""


def main() -> int:
    """Run the benchmarks; return 1 if a figure moved or a benchmark failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(SHORT)}; default: all")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(SHORT))
    if unknown:
        parser.error(f"no short benchmark {', '.join(unknown)}; there are {', '.join(SHORT)}")
    began, moved, failed = time.monotonic(), 0, []
    for name in options.names or SHORT:
        left = BUDGET_S - (time.monotonic() - began)
        problem = run(name, left) if left > 0 else f"left out: {BUDGET_S / 60:.0f} minutes are over"
        if problem:
            failed.append(name)
            print(f"{name}: {problem}")
            continue
        lines = list(compared(load(RESULTS / f"{name}.json"), load(FRESH / f"{name}.json")))
        moved += sum(line.startswith("MOVED") for line in lines)
        print(f"{name}:", *lines, sep="\n  ", flush=True)
    print(f"{moved} figures moved beyond noise; {len(failed)} benchmarks failed {failed or ''}".rstrip())
    return 1 if moved or failed else 0


def run(name: str, left_s: float) -> str:
    """Run one benchmark into :data:`FRESH`; return what went wrong, or nothing."""
    short = SHORT[name]
    target = FRESH / f"{name}.json"
    target.unlink(missing_ok=True)
    command = [sys.executable, str(ROOT / "benchmarks" / short.script), *short.options, "--write", str(target)]
    limit = min(short.limit_s, left_s)
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return f"stopped after {limit:.0f} s"
    if done.returncode or not target.exists():
        return (done.stderr.strip().splitlines() or ["no output"])[-1]
    return ""


def compared(committed: Record, fresh: Record) -> Iterator[str]:
    """Yield a line a figure that moved, changed without an interval, or is new; then a line of counts."""
    if committed.machine.partition(", load")[0] != fresh.machine.partition(", load")[0]:
        yield f"machines differ: {committed.machine!r} and now {fresh.machine!r}"
    before = {(figure.case, figure.metric): figure for figure in committed.figures}
    within = 0
    for figure in fresh.figures:
        old = before.get((figure.case, figure.metric))
        state = "new" if old is None else judged(old, figure)
        if state == "within noise":
            within += 1
        else:
            yield f"{state}: {figure.case}, {figure.metric}: {_shown(old)} -> {_shown(figure)}"
    yield f"{within} of {len(fresh.figures)} figures within noise"


def judged(old: Figure, new: Figure) -> str:
    """Return whether a figure moved: their intervals have no common point.

    >>> judged(Figure("a", "b", 1.0, interval=(0.9, 1.1)), Figure("a", "b", 2.0, interval=(1.8, 2.2)))
    'MOVED'
    """
    if old.value is None or new.value is None:
        return "within noise" if old.remark == new.remark else "MOVED"
    if old.interval is None or new.interval is None:
        return "within noise" if old.value == new.value else "no interval"
    disjoint = new.interval[0] > old.interval[1] or new.interval[1] < old.interval[0]
    return "MOVED" if disjoint else "within noise"


def _shown(figure: Figure | None) -> str:
    if figure is None:
        return "none"
    if figure.value is None:
        return figure.remark
    interval = f" [{figure.interval[0]:g}, {figure.interval[1]:g}]" if figure.interval else ""
    return f"{figure.value:g}{interval} {figure.unit}".rstrip()


if __name__ == "__main__":
    raise SystemExit(main())
