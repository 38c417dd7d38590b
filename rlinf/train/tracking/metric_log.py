"""Where metrics go: `metrics.jsonl` always, and the services that are asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Self

from rlinf.config import Config
from rlinf.durable import metric_lines, write_atomically
from rlinf.train.tracking.sinks import Sink, start_sinks


class MetricLog:
    """One JSON object a step. After a resume the file continues from the checkpoint, without the lost steps.

    A service that fails loses its numbers, which `metrics.jsonl` has; ``say`` hears of it once, and training goes on.
    """

    def __init__(self, folder: Path, config: Config, *, from_step: int, say: Callable[[str], None] = print) -> None:
        self.path = folder / "metrics.jsonl"
        self._say = say
        self._told: set[str] = set()
        self._sinks = start_sinks(folder, config, from_step)
        self._keep_until(from_step)
        self._file = self.path.open("a")

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Numbers of one step, flushed at once."""
        self._file.write(json.dumps({"step": step, **metrics}) + "\n")
        self._file.flush()
        for sink in self._sinks:
            self._guard(sink, partial(sink.write, step, metrics))

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
            if name not in self._told:
                self._told.add(name)
                self._say(f"{name} does not take metrics (metrics.jsonl has them): {error}")

    def _keep_until(self, step: int) -> None:
        if not self.path.exists():
            return
        before = self.path.read_text(encoding="utf-8", errors="replace")
        after = "".join(json.dumps(line) + "\n" for line in metric_lines(before) if line["step"] <= step)
        if after != before:
            write_atomically(self.path, after)
