"""Records of measurements: one JSON file a benchmark in ``benchmarks/results/``.

``add_output(parser)`` gives a script ``--write [FILE]``; ``save(...)`` writes its figures. A record also holds words
for the pages (title, topic, how it was measured, what follows): those stay when a script writes new figures.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
_CELL = re.compile(
    r"(?P<value>[-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?)(?P<percent>%?)"
    r"(?: ?(?:\[(?P<low>[^,\]]+), (?P<high>[^\]]+)\]|\((?P<least>[\d.,]+) to (?P<most>[\d.,]+)\)|± (?P<half>[\d.,]+)))?"
)


@dataclass(frozen=True)
class Figure:
    """One measured number."""

    case: str
    """What was measured: the row of a table."""
    metric: str
    """The column."""
    value: float | None
    """None if the case has no number; ``remark`` then gives the reason."""
    unit: str = ""
    interval: tuple[float, float] | None = None
    """None if the interval was not recorded."""
    n: int | None = None
    """Held-out tasks, episodes or repeats behind the value; None if not recorded."""
    seeds: tuple[int, ...] | None = None
    remark: str = ""
    change: bool = False
    """A difference: pages show it in bold if its interval excludes 0."""


@dataclass(frozen=True)
class Curves:
    """Lines of one picture: a colour a group, a line a run."""

    label: str
    """Of the values."""
    across: str
    """Of the other axis."""
    groups: Mapping[str, Sequence[Sequence[tuple[float, float]]]]
    """Name of a group -> its runs, each as points (across, value)."""


@dataclass(frozen=True)
class Record:
    """The figures of one benchmark, and how they were made."""

    title: str
    topic: str
    script: str | None
    """None if the command is `rlinf` itself."""
    command: str
    commit: str
    """Commit that was measured, or that recorded the figures if they are older than this format."""
    date: str
    machine: str
    intervals: str
    """Kind of the intervals, such as ``95% Wilson``."""
    note: str = ""
    """How it was measured."""
    reading: str = ""
    """What follows, negative results included."""
    order: int = 0
    """Position on the page of the topic."""
    figures: tuple[Figure, ...] = field(default=())
    curves: Curves | None = None
    """What the page draws above the table."""

    def figure(self, case: str, metric: str) -> Figure:
        """Return the figure of a case and a metric; KeyError without it."""
        for figure in self.figures:
            if (figure.case, figure.metric) == (case, metric):
                return figure
        raise KeyError(f"{self.title}: no figure {case!r}, {metric!r}")


def load(path: Path) -> Record:
    """Read a record; TypeError if a field is missing or unknown."""
    fields = json.loads(path.read_text(encoding="utf-8"))
    figures = []
    for one in fields.pop("figures"):
        one["interval"] = None if one["interval"] is None else tuple(one["interval"])
        one["seeds"] = None if one["seeds"] is None else tuple(one["seeds"])
        figures.append(Figure(**one))
    curves = fields.pop("curves", None)
    return Record(**fields, figures=tuple(figures), curves=Curves(**curves) if curves else None)


def load_all(folder: Path = RESULTS) -> dict[str, Record]:
    """Read every record of a folder: file name without ending -> record, in the order of the pages."""
    found = {path.stem: load(path) for path in sorted(folder.glob("*.json"))}
    return dict(sorted(found.items(), key=lambda item: (item[1].order, item[0])))


def dump(record: Record, path: Path) -> None:
    """Write a record, one figure a line."""
    fields = asdict(record)
    figures = [
        json.dumps({key: value for key, value in one.items() if key != "change" or value}, ensure_ascii=False)
        for one in fields.pop("figures")
    ]
    if fields["curves"] is None:
        del fields["curves"]
    lines = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}," for key, value in fields.items()]
    body = ",\n    ".join(figures)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + "\n".join(lines) + f'\n  "figures": [\n    {body}\n  ]\n}}\n', encoding="utf-8")


def add_output(parser: argparse.ArgumentParser, name: str) -> None:
    """Add ``--write [FILE]`` to a script's options; FILE is the committed record if it is left out."""
    target = RESULTS / f"{name}.json"
    text = f"write the figures as JSON (default: {target.relative_to(ROOT)})"
    parser.add_argument("--write", nargs="?", type=Path, const=target, metavar="FILE", help=text)


def save(
    path: Path,
    figures: Iterable[Figure],
    *,
    intervals: str,
    keep_others: bool = False,
    curves: Curves | None = None,
) -> None:
    """Write figures of this process's command to ``path``, with the words of the committed record of that name.

    Args:
        path: the file to write.
        figures: what was measured.
        intervals: kind of their intervals.
        keep_others: the script measures one case a call: figures of ``path`` that were not measured now stay.
        curves: a picture of them.
    """
    figures = list(figures)
    if keep_others and path.exists():
        figures = merged(load(path).figures, figures)
    committed = RESULTS / path.name
    script = Path(sys.argv[0]).name
    title = path.stem.replace("_", " ").capitalize()
    old = load(committed) if committed.exists() else Record(title, "throughput", None, "", "", "", "", "")
    words = [word for word in sys.argv[1:] if word not in ("--write", str(path))]
    record = replace(
        old,
        script=f"benchmarks/{script}",
        command=shlex.join(["python", f"benchmarks/{script}", *words]),
        commit=commit(),
        date=datetime.now(UTC).date().isoformat(),
        machine=machine(),
        intervals=intervals,
        figures=tuple(figures),
        curves=curves,
    )
    dump(record, path)
    print(f"written: {path}")


def merged(old: Iterable[Figure], new: Iterable[Figure]) -> list[Figure]:
    """Return ``old`` with the figures of ``new`` instead of those of the same case and metric; others come last.

    >>> [one.value for one in merged([Figure("a", "m", 1), Figure("b", "m", 2)], [Figure("a", "m", 4)])]
    [4, 2]
    """
    found = {(one.case, one.metric): one for one in old}
    found |= {(one.case, one.metric): one for one in new}
    return list(found.values())


def commit() -> str:
    """Return the short name of the checked-out commit, with ``-dirty`` if tracked files differ from it."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=8"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def machine() -> str:
    """Return processor, number of cores and load average."""
    name = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
            break
    return f"{name}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.0f}"


def spread(values: Sequence[float], digits: int = 3) -> tuple[float, tuple[float, float]]:
    """Return the median and the range of repeats, rounded to significant digits.

    >>> spread([3.0, 1.0, 2.0])
    (2.0, (1.0, 3.0))
    """
    middle, low, high = (float(f"{one:.{digits}g}") for one in (statistics.median(values), min(values), max(values)))
    return middle, (low, high)


def over_seeds(case: str, metric: str, values: Sequence[float], *, digits: int, n: int | None = None) -> Figure:
    """Return the mean of the seeds 0, 1, ..., rounded to decimal places; the interval is their smallest and largest.

    >>> figure = over_seeds("a", "return", [1.04, 3.0], digits=1)
    >>> figure.value, figure.interval, figure.seeds
    (2.0, (1.0, 3.0), (0, 1))
    """
    rounded = [round(value, digits) for value in values]
    ends, seeds = (min(rounded), max(rounded)), tuple(range(len(rounded)))
    return Figure(case, metric, round(statistics.mean(rounded), digits), interval=ends, n=n, seeds=seeds)


def figures_of_table(text: str, *, labels: int = 1, seeds: tuple[int, ...] | None = None) -> list[Figure]:
    """Return the cells of Markdown tables as figures; the first ``labels`` columns name the case.

    >>> figures_of_table("| engine | tokens |\\n|---|---|\\n| hf | 735 (700 to 750) |")[0].interval
    (700.0, 750.0)
    """
    found = []
    titles: list[str] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            titles = []
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not titles:
            titles = cells
        elif not set(line) <= set("|-: "):
            case = ", ".join(cell.strip("* ") for cell in cells[:labels] if cell)
            pairs = zip(titles[labels:], cells[labels:], strict=True)
            found += [_figure(case, title, cell, seeds) for title, cell in pairs if cell]
    return found


def _figure(case: str, metric: str, cell: str, seeds: tuple[int, ...] | None) -> Figure:
    match = _CELL.fullmatch(cell.replace("*", ""))
    if match is None:
        return Figure(case, metric, None, seeds=seeds, remark=cell)
    value = _number(match["value"])
    interval = None
    if match["low"]:
        interval = (_number(match["low"]), _number(match["high"]))
    elif match["least"]:
        interval = (_number(match["least"]), _number(match["most"]))
    elif match["half"]:
        half = _number(match["half"])
        interval = (round(value - half, 6), round(value + half, 6))
    return Figure(case, metric, value, "%" if match["percent"] else "", interval, seeds=seeds)


def _number(text: str) -> float:
    number = float(text.replace(",", "").strip("%"))
    return int(number) if number.is_integer() and "." not in text and "e" not in text else number
