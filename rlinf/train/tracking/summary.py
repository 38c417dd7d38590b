"""The end of a run: `summary.json`, and what a person sees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rlinf.base.terminal import printable
from rlinf.data.messages import Metrics, WeightUpdate
from rlinf.train.tracking.transcript import graded


def fingerprint(updates: Iterable[WeightUpdate]) -> str:
    """Compute the sha256 of all parameters: names, shapes and float32 bytes, in order of name within each part."""
    digest = sha256()
    for update in updates:
        for name in sorted(update.tensors):
            tensor = update.tensors[name].detach().float().contiguous()
            digest.update(f"{name}{tuple(tensor.shape)}".encode())
            digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def show(console: Console, columns: Mapping[str, Metrics], samples: Sequence[Mapping[str, Any]]) -> None:
    """Print evaluations with 95% intervals and three graded samples.

    Each evaluation stands under its name, and all have the same settings."""
    if any(columns.values()):
        console.print(_table(columns))
    for sample in samples[:3]:
        console.print()
        grid = Table.grid(padding=(0, 2))
        for label, text in graded(sample):
            grid.add_row(Text(label, style="dim"), text)
        console.print(grid)


def contents(folder: Path) -> str:
    """Return the folder and what a reader needs in it.

    >>> contents(Path("runs/none"))
    'runs/none'
    """
    requested = ("summary.json", "metrics.jsonl", "samples", "episodes", "videos", "policy")
    result = ", ".join(name for name in requested if (folder / name).exists())
    return printable(f"{folder}: {result}" if result else str(folder))


def _table(columns: Mapping[str, Metrics]) -> Table:
    table = Table(title="evaluation")
    table.add_column("metric")
    for name in columns:
        table.add_column(name, justify="right")
    metrics = dict.fromkeys(name for column in columns.values() for name in column)
    for name in metrics:
        if name.startswith("eval/") and "/ci_" not in name and not name.endswith("/n"):
            table.add_row(name.removeprefix("eval/"), *(_cell(name, column) for column in columns.values()))
    return table


def _cell(name: str, metrics: Metrics) -> str:
    if name not in metrics:
        return "-"
    if f"{name}/ci_low" not in metrics:
        return f"{metrics[name]:.3f}"
    return f"{metrics[name]:.3f} [{metrics[f'{name}/ci_low']:.3f}, {metrics[f'{name}/ci_high']:.3f}]"
