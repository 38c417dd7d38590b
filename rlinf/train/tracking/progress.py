"""The display of a run while it goes on: live, or a line a step if the output is not a terminal."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from rlinf.base.redaction import redacted
from rlinf.base.terminal import printable

_BARS = " ▁▂▃▄▅▆▇█"

# The metrics worth a person's glance, under the names people use, in the order shown; a run shows those it has.
_SHOWN = {
    "reward/mean": ("reward", "{:.3f}"),
    "rollout/accuracy": ("accuracy", "{:.1%}"),
    "rollout/return": ("return", "{:.1f}"),
    "rollout/success_once": ("success", "{:.1%}"),
    "eval/accuracy": ("eval accuracy", "{:.1%}"),
    "eval/return": ("eval return", "{:.1f}"),
    "eval/success_once": ("eval success", "{:.1%}"),
    "rollout/response_length": ("length", "{:.1f}"),
    "train/loss": ("loss", "{:.4f}"),
    "speed/tokens_per_s": ("tokens/s", "{:,.0f}"),
    "speed/steps_per_s": ("env steps/s", "{:,.0f}"),
}


class ProgressDisplay:
    """``mode``: live, plain, none, or auto (live on a terminal)."""

    def __init__(self, *, name: str, mode: str, total: int, done: int, plain_every: int = 1) -> None:
        self.console = Console()
        self.mode = ("live" if self.console.is_terminal else "plain") if mode == "auto" else mode
        self.plain_every = plain_every
        self.latest: dict[str, float] = {}
        self.history: dict[str, list[float]] = {}
        self._bar = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
        )
        self._task = self._bar.add_task(printable(name), total=total, completed=done)
        self._began, self._done_before, self.total = time.monotonic(), done, total
        self._live = Live(self, console=self.console, refresh_per_second=4) if self.mode == "live" else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def print_line(self, text: str, style: str = "") -> None:
        """Print a line that stays: ``text`` as it is (no markup), in one of rich's styles."""
        if self.mode != "none":
            self.console.print(Text(printable(redacted(text)), style=style), soft_wrap=True)

    def warn(self, text: str) -> None:
        """Print a line that every user should see: it is printed in every mode."""
        self.console.print(Text(printable(text), style="yellow"), soft_wrap=True)

    def phase(self, text: str, *, total: int, done: int = 0) -> None:
        """Another stage of the run (a warm start, the training steps) with its own length."""
        self._bar.reset(self._task, total=total, completed=done, description=text)
        self._began, self._done_before, self.total = time.monotonic(), done, total
        self.latest, self.history = {}, {}

    def warm(self, done: int, metrics: Mapping[str, float]) -> None:
        """Show a finished step of the warm start."""
        self._bar.update(self._task, completed=done)
        self.latest["train/loss"] = metrics["loss"]
        self.history.setdefault("train/loss", []).append(metrics["loss"])
        if self.mode == "plain" and (done % 50 == 0 or done == self.total):
            self.print_line(f"warm start {done}/{self.total}  loss {metrics['loss']:.4f}  left {self._left(done)}")

    def evaluated(self, where: str, metrics: Mapping[str, float]) -> None:
        """Show an evaluation on the way, with the run's position in words."""
        self.print_line(f"{where}:  {_line(metrics)}")

    def step(self, done: int, metrics: Mapping[str, float]) -> None:
        """Show the numbers of a finished step."""
        self._bar.update(self._task, completed=done)
        for name in _SHOWN:
            if name in metrics:
                self.latest[name] = metrics[name]
                self.history.setdefault(name, []).append(metrics[name])
        if self.mode == "plain" and (done % self.plain_every == 0 or done == self.total):
            self.print_line(f"step {done}/{self.total}  {_line(metrics)}  left {self._left(done)}")

    def _left(self, done: int) -> str:
        advanced = done - self._done_before
        if advanced < 1:
            return "?"
        seconds = (time.monotonic() - self._began) / advanced * (self.total - done)
        return f"{int(seconds // 60)}:{int(seconds % 60):02d}"

    def __rich__(self) -> Any:
        table = Table.grid(padding=(0, 2))
        for name, value in self.latest.items():
            label, form = _SHOWN[name]
            table.add_row(Text(label, style="dim"), form.format(value), Text(sparkline(self.history[name])))
        return Group(self._bar, table)


def _line(metrics: Mapping[str, float]) -> str:
    """Return the numbers worth a glance, in one line."""
    return "  ".join(f"{label} {form.format(metrics[n])}" for n, (label, form) in _SHOWN.items() if n in metrics)


def sparkline(values: list[float], width: int = 48) -> str:
    """Draw the curve of a metric in one line of text; what is not finite is left out.

    >>> sparkline([0.0, float("nan"), 0.5, 1.0])
    ' ▄█'
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    # Scaled, so that sums and the span of the largest floats are finite too.
    largest = max(map(abs, finite)) or 1.0
    size = -(-len(finite) // width)
    groups = [finite[i : i + size] for i in range(0, len(finite), size)]
    means = [sum(value / largest for value in group) / len(group) for group in groups]
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    return "".join(_BARS[round((value - low) / span * (len(_BARS) - 1))] for value in means)
