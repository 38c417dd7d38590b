"""A trial's run in a process of its own, and its metrics as they are written."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

from rlinf.base.child_process import ChildProcess
from rlinf.base.durable import write_atomically
from rlinf.base.json_files import read_json_lines
from rlinf.base.redaction import redacted
from rlinf.config import Config
from rlinf.config.record import stored_yaml, written
from rlinf.train.evaluation.missing_metric import missing_metric, missing_success


class TrialFailed(RuntimeError):
    """The run ended with an error; the message is its traceback."""


class RunProcess:
    """Starts, follows and ends the process of a run."""

    def __init__(self, folder: Path, config: Config, *, threads: int, hold_every: int = 0) -> None:
        """``hold_every``: after every N iterations the run waits for :meth:`go_on`."""
        self.log = folder / "log.txt"
        write_atomically(folder / "config.yaml", stored_yaml(config))
        self._output: IO[str] = self.log.open("a")
        self._start = self.log.stat().st_size
        self._process = ChildProcess(
            [sys.executable, "-m", "rlinf.sweep.trial_process", str(folder), str(hold_every)],
            name="the run",
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            input=True,
            output=self._output,
            session=False,  # Ctrl-C is for the runs of a sweep too: they write a checkpoint
            tied=False,  # its input is its leash
        )
        # Not through the file, which holds no values of `cluster.env`.
        self._process.send(json.dumps(written(config)).encode() + b"\n")

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self) -> bool:
        """Return whether the process is over; raise :class:`TrialFailed` if it ended with an error."""
        code = self._process.wait(0.0)
        if code is None:
            return False
        how = f"the run {self._process.how_it_ended()}"
        if code < 0:
            raise TrialFailed(f"{self._last_words()}\n{how}")
        if code > 0:
            raise TrialFailed(f"{how}\n{self._last_words()}")
        return True

    def go_on(self) -> None:
        """Lets a run that holds take its next steps; one that has just died is reported by :meth:`ended`."""
        self._process.send(b".")

    def stop(self) -> None:
        """End the process, if it is not over."""
        self._process.kill()
        self._output.close()

    def _last_words(self) -> str:
        """Return the newest traceback of this attempt, or the last lines if there is none."""
        with self.log.open() as file:
            file.seek(self._start)
            lines = file.read().splitlines()
        starts = [index for index, line in enumerate(lines) if line.startswith("Traceback")]
        # What libraries and native code printed themselves may hold secrets too.
        return redacted("\n".join(lines[starts[-1] :] if starts else lines[-40:]))[-8000:]


class ObjectiveTail:
    """The values of a sweep's metric in a `metrics.jsonl` that grows, and that a resume may have shortened."""

    def __init__(self, path: Path, metric: str, mode: str, success_key: str) -> None:
        """``success_key``: `env.success_key` of the run."""
        self._path, self._metric, self._success_key = path, metric, success_key
        self.begin_again()
        self._better: Callable[[float, float], float] = max if mode == "max" else min
        self.best: float | None = None
        self.value: float | None = None
        """The newest."""
        self.steps = 0

    def begin_again(self) -> None:
        """Read the file from its first line on: it is another one now."""
        self._seen = -1

    def read(self) -> bool:
        """Read the new lines, without those of a warm start, whose steps are negative; return whether they had values.

        :raises TrialFailed: the run does not measure the metric.
        """
        result = False
        # A line that is not written to its end yet comes whole the next time.
        for numbers in read_json_lines(self._path, number="step").rows:
            if numbers["step"] <= self._seen:
                continue
            self.steps = self._seen = numbers["step"]
            value = numbers.get(self._metric)
            # At once, instead of after the last step; later episodes may be the first to report success.
            missing = missing_metric(self._metric, numbers, self._success_key) if self.value is None else None
            if missing is not None:
                raise TrialFailed(f"metric: {missing}")
            if value is not None and math.isfinite(value):
                self.value, result = value, True
                self.best = value if self.best is None else self._better(self.best, value)
        return result

    def require_value(self) -> None:
        """Raise TrialFailed if there was none."""
        if self.value is None:
            why = missing_success(self._metric, self._success_key) if self.steps else ""
            raise TrialFailed(f"no value of {self._metric} was logged up to step {self.steps}{why}")
