"""A sweep as it goes on: a table that updates on a terminal, a line for each event elsewhere."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from rlinf.sweep.load import Sweep
from rlinf.sweep.records import TrialRecord

_COLOURS = {"running": "cyan", "finished": "green", "stopped": "yellow", "failed": "red", "again": "yellow"}
_ROWS = 16


@dataclass
class Shown:
    """A trial's line."""

    name: str
    status: str = "running"
    step: int = 0
    value: float | None = None
    began: float = 0.0


class LiveView:
    """Trials, status, best so far, time left."""

    current: ClassVar[LiveView | None] = None
    """The view of this process: Tune reads its callbacks back from disk, which a terminal does not survive."""

    def __init__(self, sweep: Sweep, *, total: int, finished: int) -> None:
        self.sweep, self.total, self.done_before = sweep, total, finished
        self.console = Console()
        self.trials: dict[str, Shown] = {}
        self.durations: list[float] = []
        self.began = time.monotonic()
        self.best: tuple[float, str] | None = None
        self._live = Live(self, console=self.console, refresh_per_second=2) if self.console.is_terminal else None

    def __enter__(self) -> Self:
        before = f", {self.done_before} finished before" if self.done_before else ""
        self.say(f"[bold]{self.sweep.name}[/]: {self.total} trials{before}, in {self.sweep.folder}")
        if self._live is not None:
            self._live.start()
        LiveView.current = self
        return self

    def __exit__(self, *_error: object) -> None:
        LiveView.current = None
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)

    def started(self, name: str) -> None:
        shown = self._shown(name)
        shown.status = "running"
        self.event(f"started   {name}")

    def reported(self, name: str, step: int, value: float) -> None:
        shown = self._shown(name)
        shown.step, shown.value = step, value
        sign = 1 if self.sweep.config.mode == "max" else -1
        if self.best is None or sign * value > sign * self.best[0]:
            self.best = (value, name)

    def ended(self, name: str) -> None:
        shown = self._shown(name)
        shown.status = "finished"
        self.durations.append(time.monotonic() - shown.began)
        value = f"{self.sweep.config.metric} {_number(shown.value)}"
        self.event(f"[green]finished[/]  {name}  {value}  {self._progress()}")

    def failed(self, name: str, *, again: bool) -> None:
        self._shown(name).status = "again" if again else "failed"
        what = "failed, will be tried again" if again else "failed for good"
        self.say(f"[red]{name} {what}[/]\n{escape(self._error(name))}")

    def _shown(self, name: str) -> Shown:
        """A trial's line, made when it is first heard of."""
        return self.trials.setdefault(name, Shown(name, began=time.monotonic()))

    def event(self, text: str) -> None:
        """A line where nobody watches; on a terminal the table shows it."""
        if self._live is None:
            self.say(text)

    def _error(self, name: str) -> str:
        folder = self.sweep.folder / "trials" / name
        known = (folder / "trial.json").exists()
        return (TrialRecord.read(folder).error if known else None) or "it could not be started: see Ray's own log"

    def _progress(self) -> str:
        over = self.done_before + sum(shown.status in ("finished", "failed") for shown in self.trials.values())
        left = self.total - over
        running = max(1, sum(shown.status == "running" for shown in self.trials.values()))
        if not self.durations or not left:
            return f"{over}/{self.total}"
        seconds = sum(self.durations) / len(self.durations) * left / max(running, self._parallel())
        return f"{over}/{self.total}  about {seconds / 60:.0f} min left"

    def _parallel(self) -> float:
        """How many trials ran side by side so far, on average."""
        return sum(self.durations) / max(1e-9, time.monotonic() - self.began)

    def __rich__(self) -> Any:
        table = Table(title=f"{self.sweep.name}  {self._progress()}")
        for name in ("trial", "status", "step", self.sweep.config.metric):
            table.add_column(name)
        order = {"running": 0, "again": 1, "failed": 2}
        for shown in sorted(self.trials.values(), key=lambda shown: order.get(shown.status, 3))[:_ROWS]:
            status = Text(shown.status, style=_COLOURS[shown.status])
            table.add_row(shown.name, status, str(shown.step), _number(shown.value))
        best = f"best so far: {_number(self.best[0])} by {self.best[1]}" if self.best else "no result yet"
        return Group(table, Text(best))


def _number(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
