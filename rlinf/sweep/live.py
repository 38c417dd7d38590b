"""A sweep as it goes on: a table that updates on a terminal, a line for each event elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rlinf.base.terminal import printable
from rlinf.sweep.load import Sweep

_COLOURS = {"running": "cyan", "finished": "green", "failed": "red"}
_ORDER = ("failed", "again", "running", "paused", "finished", "stopped")
_OVER = ("finished", "stopped", "failed")
_ROWS = 16


@dataclass
class Shown:
    """A trial's line."""

    name: str
    status: str = "running"
    step: int = 0
    value: float | None = None
    best: float | None = None
    setting: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    """Of the attempts before this one; a trial that is paused takes none."""
    began: float = 0.0


class LiveView:
    """Trials, status, best so far, time left. Also the clock of `budget.wall_time_s`."""

    def __init__(
        self,
        sweep: Sweep,
        *,
        total: int,
        done_before: Set[str],
        begun_before: Set[str] = frozenset(),
        console: Console | None = None,
    ) -> None:
        """``done_before``: trials that earlier calls finished; ``begun_before``: others that it began."""
        self.sweep, self.total, self.done_before, self.begun_before = sweep, total, done_before, begun_before
        self.console = console or Console()
        self.trials: dict[str, Shown] = {}
        self.widest = 1
        self.began = time.monotonic()
        self.out_of_time = False
        self._sign = 1 if sweep.config.mode == "max" else -1
        self._live = Live(self, console=self.console, refresh_per_second=2) if self.console.is_terminal else None

    def __enter__(self) -> Self:
        before = f", {len(self.done_before)} done before" if self.done_before else ""
        trials = "1 trial" if self.total == 1 else f"{self.total} trials"
        self.print_line(f"{self.sweep.name}: {trials}{before}, in {self.sweep.folder}")
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def print_line(self, text: str, style: str = "") -> None:
        """Print a line that stays: ``text`` as it is (no markup), in one of rich's styles."""
        self.console.print(Text(printable(text), style=style), soft_wrap=True)

    def event(self, text: str, style: str = "") -> None:
        """Print a line if the output is not a terminal; on a terminal the table shows it."""
        if self._live is None:
            self.print_line(text, style)

    def started(self, name: str, setting: Mapping[str, Any]) -> None:
        shown = self._shown(name)
        if shown.setting and shown.setting != setting:
            text = ", ".join(f"{key}={_number(value)}" for key, value in setting.items())
            self.event(f"copies    {name}  a better one, and goes on with {text}")
        elif shown.status != "paused":
            self.event(f"started   {name}")
        shown.setting, shown.status, shown.began = setting, "running", time.monotonic()
        self.widest = max(self.widest, self._count("running"))

    def paused(self, names: Set[str]) -> None:
        for name in names & self.trials.keys():
            self._leave(self.trials[name], "paused")

    def reported(self, name: str, step: int, value: float) -> None:
        shown = self._shown(name)
        shown.step, shown.value = step, value
        if shown.best is None or self._sign * value > self._sign * shown.best:
            shown.best = value

    def ended(self, name: str, status: str) -> None:
        shown = self._shown(name)
        self._leave(shown, status)
        value = f"{self.sweep.config.metric} {_number(shown.value)} at step {shown.step}"
        self.event(f"{status:<9} {name}  {value}  {self.progress()}", _COLOURS.get(status, "yellow"))

    def failed(self, name: str, error: str, *, again: bool) -> None:
        self._leave(self._shown(name), "again" if again else "failed")
        what = "failed, and will be tried again" if again else "failed for good"
        self.print_line(f"{name} {what}", "red")
        self.print_line(error)

    def time_is_up(self) -> bool:
        """Return True once, when the sweep has had its `wall_time_s`."""
        limit = self.sweep.config.budget.wall_time_s
        if limit is None or self.out_of_time or time.monotonic() - self.began < limit:
            return False
        self.out_of_time = True
        return True

    def progress(self) -> str:
        """`3/12 trials, about 8 min left`."""
        over = len(self._unseen()) + sum(self._count(status) for status in _OVER)
        text = f"{over}/{self.total} trial{'' if self.total == 1 else 's'}"
        left = self._seconds_left(over)
        return text if left is None else f"{text}, about {_duration(left)} left"

    def _seconds_left(self, over: int) -> float | None:
        """From the time that whole trials took, and the steps of the others; None before the first is over.

        A trial that an earlier call began took less time here than a whole one, so it does not count.
        """
        whole = [shown for name, shown in self.trials.items() if name not in self.begun_before | self.done_before]
        took = [shown.seconds for shown in whole if shown.status in _OVER]
        budget, left = self.sweep.config.budget, float(self.total - over)
        if budget.steps:
            left -= sum(shown.step / budget.steps for shown in self.trials.values() if shown.status not in _OVER)
        result = sum(took) / len(took) * max(0.0, left) / self.widest if took and self.total > over else None
        if budget.wall_time_s is None:
            return result
        until_limit = max(0.0, budget.wall_time_s - (time.monotonic() - self.began))
        return until_limit if result is None else min(result, until_limit)

    def _shown(self, name: str) -> Shown:
        """Return a trial's line, made at its first event."""
        return self.trials.setdefault(name, Shown(name, began=time.monotonic()))

    def _unseen(self) -> Set[str]:
        """Done before, and not shown now: Tune may end again what had ended before its state was last saved."""
        return self.done_before - self.trials.keys()

    def _leave(self, shown: Shown, status: str) -> None:
        if shown.status == "running":
            shown.seconds += time.monotonic() - shown.began
        shown.status = status

    def _count(self, status: str) -> int:
        return sum(shown.status == status for shown in self.trials.values())

    def __rich__(self) -> Any:
        gone = _duration(time.monotonic() - self.began)
        title = Text(printable(f"{self.sweep.name}: {self.progress()}, {gone} gone"))
        table = Table(title=title, title_justify="left")
        table.add_column("trial", no_wrap=True, overflow="ellipsis")
        table.add_column("status", no_wrap=True)
        for name in ("step", self.sweep.config.metric, "best"):
            table.add_column(name, justify="right", no_wrap=True)
        ordered = sorted(self.trials.values(), key=self._rank)
        steps = f"/{self.sweep.config.budget.steps}" if self.sweep.config.budget.steps else ""
        for shown in ordered[:_ROWS]:
            status = Text(shown.status, style=_COLOURS.get(shown.status, "yellow"))
            table.add_row(
                Text(printable(shown.name)), status, f"{shown.step}{steps}", _number(shown.value), _number(shown.best)
            )
        hidden = f"and {len(ordered) - _ROWS} more; " if len(ordered) > _ROWS else ""
        unseen = len(self._unseen())
        waiting = self.total - unseen - len(ordered)
        before = f", {unseen} done before" if unseen else ""
        return Group(table, Text(f"{hidden}{waiting} not started{before}\n{self._best()}"))

    def _rank(self, shown: Shown) -> tuple[int, float]:
        """Failures first, then what runs, then results from the best on."""
        value = float("inf") if shown.value is None else -self._sign * shown.value
        return _ORDER.index(shown.status), value

    def _best(self) -> str:
        known = [shown for shown in self.trials.values() if shown.value is not None]
        if not known:
            return "no result yet"
        best = max(known, key=lambda shown: self._sign * (shown.value or 0.0))
        return f"best so far: {_number(best.value)} by {best.name}"


def _number(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _duration(seconds: float) -> str:
    """
    >>> _duration(42), _duration(600), _duration(20000)
    ('42 s', '10 min', '5.6 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
