"""Where metrics go: `metrics.jsonl` always, and the services that are configured."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Self

from rlinf.base.durable import write_atomically
from rlinf.base.json_files import read_json_lines
from rlinf.base.own_errors import own_account
from rlinf.config import Config, to_mapping
from rlinf.report.first_steps import FirstSteps
from rlinf.train.tracking.sinks import Sink, start_sinks


class MetricLog:
    """One JSON object a step. After a resume the file continues from the checkpoint, without the lost steps.

    A service that fails loses its numbers, which `metrics.jsonl` has; ``warn`` reports it once, and training goes
    on. It also reports, once, what is wrong with the first training iterations.
    """

    def __init__(self, folder: Path, config: Config, *, from_step: int, warn: Callable[[str], None] = print) -> None:
        self.path = folder / "metrics.jsonl"
        self._warn = warn
        self._reported: set[str] = set()
        self._sinks = start_sinks(folder, config, from_step)
        lines = read_json_lines(self.path, number="step")
        if lines.damaged:
            self._warn(lines.note(self.path))
        kept = [row for row in lines.rows if row["step"] <= from_step]
        write_atomically(self.path, "".join(json.dumps(row) + "\n" for row in kept))
        self._first_steps = FirstSteps(to_mapping(config), earlier=kept)
        self._file = self.path.open("a")

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Numbers of one step, flushed at once."""
        self._file.write(json.dumps({"step": step, **metrics}) + "\n")
        self._file.flush()
        for sink in self._sinks:
            self._guard(sink, partial(sink.write, step, metrics))
        for warning in self._first_steps.add(step, metrics):
            self._warn(f"WARNING: {warning}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        self._file.close()
        for sink in self._sinks:
            self._guard(sink, partial(sink.close, failed=kind is not None))

    def _guard(self, sink: Sink, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # a lost connection, a full disk: each service has errors of its own
            name = type(sink).__name__
            if name not in self._reported:
                self._reported.add(name)
                self._warn(f"{name} does not take metrics (metrics.jsonl has them): {own_account(error) or error}")
