"""Short runs of a file at several sizes, whose steps take turns, so that a busy machine slows all of them alike.

One process imports the libraries, and forks one child per run. A child makes its next steps when its turn comes. So one
process computes at a time, with one thread, and its clock counts its own CPU-seconds.

    python -m rlinf.train.rehearsal.short_runs FOLDER DESCRIPTOR      the process; a line of its input is a job
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from rlinf.base.child_process import ChildProcess, die_with_parent
from rlinf.base.errors import UserError
from rlinf.base.json_files import read_json_lines
from rlinf.base.signals import defer_signals
from rlinf.config import Config, load_mapping
from rlinf.config.record import written

PHASES: Mapping[str, str] = {
    "generation": "time/generation_s",
    "scoring": "time/prepare_s",
    "update": "time/update_s",
    "weights": "time/weights_s",
}
"""Phase of a step -> its metric; "the rest" is what a step has besides."""
TURNS = 4
"""Of each run; the first also pays for caches and the optimiser's state, and is left out."""
_TURN_S = 0.3
"""CPU-seconds after which a turn ends with the step under way: short steps are repeated, since they vary more."""
_GO, _END = b".", b"!"
"""What a run in a child is sent when its turn comes, and after its last one."""
_TIMEOUT_S = 3600.0
_LAST_WORDS = 1500


@dataclass(frozen=True)
class RunCost:
    """Times and memory of a run in one process."""

    seconds: Mapping[str, float]
    """CPU-seconds of a step, by phase: the least of all steps, since other work on the machine only adds to them."""
    median_s: float
    """CPU-seconds of a step, the median of all steps."""
    memory_bytes: float
    """The most resident memory of its process."""
    prompt_tokens: float
    """Tokens of a prompt, on average."""
    response_tokens: float

    @property
    def step_s(self) -> float:
        """CPU-seconds of a step without other work on the machine."""
        return sum(self.seconds.values())


class ShortRuns:
    """The process that makes short runs, and its folder: both go at the end of the context, whatever ends it."""

    def __enter__(self) -> Self:
        self._resources = ExitStack()
        try:
            with defer_signals():
                self._start(self._resources)
        except BaseException:
            self._resources.close()
            raise
        return self

    def _start(self, resources: ExitStack) -> None:
        folder = resources.enter_context(tempfile.TemporaryDirectory(prefix="rlinf_clock_"))
        self._log = resources.enter_context((Path(folder) / "log.txt").open("w+"))
        self._replies, theirs = os.pipe()
        resources.callback(os.close, self._replies)
        try:
            self._process = ChildProcess(
                [sys.executable, "-m", __name__, folder, str(theirs)],
                name="the short runs",
                env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
                pass_fds=(theirs,),
                input=True,
                output=self._log,
            )
        finally:
            os.close(theirs)
        resources.callback(self._process.kill)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with defer_signals():
            self._resources.close()

    def measured(self, runs: Sequence[Config]) -> list[RunCost]:
        """Make these runs by turns, and return what they cost.

        They have no warm start, evaluation or checkpoint. Memory is that of a process which imported everything itself.

        :raises UserError: a run failed, or they took longer than an hour; the message has the last lines.
        """
        job = [written(config) for config in runs]
        self._process.send(json.dumps(job, default=str).encode() + b"\n")
        reply, until = b"", time.monotonic() + _TIMEOUT_S
        while not reply.endswith(b"\n"):
            if not select.select([self._replies], [], [], max(0.0, until - time.monotonic()))[0]:
                raise UserError(f"{len(runs)} short runs were not over after {_TIMEOUT_S:.0f} s{self._last_words()}")
            part = os.read(self._replies, 1 << 16)
            if not part:
                raise UserError(f"a short run of the calibration failed{self._last_words()}")
            reply += part
        return [RunCost(**cost) for cost in json.loads(reply)]

    def _last_words(self) -> str:
        self._log.seek(0)
        return f"; it last wrote:\n{self._log.read()[-_LAST_WORDS:].strip()}"


def _serve(folder: Path, replies: int) -> int:
    """Make the runs of each job; return the exit code."""
    die_with_parent()
    # Metrics of time are CPU-seconds from here on: other processes of the machine do not count.
    time.perf_counter = time.process_time
    for number, line in enumerate(sys.stdin):
        job = json.loads(line)
        if not number:
            _train(job[0], folder / "first", steps=1)  # imports what a run needs
            with suppress(AttributeError, OSError):
                ctypes.CDLL(None).malloc_trim(0)
        turns = [_Turns(config, folder / f"{number}_{run}") for run, config in enumerate(job)]
        for _ in range(TURNS):
            for one in turns:
                one.take()
        costs = [one.cost() for one in turns]
        if None in costs:
            return 1
        os.write(replies, json.dumps(costs).encode() + b"\n")
    return 0


class _Turns:
    """A run in a forked child, which makes steps when its turn comes."""

    def __init__(self, config: Mapping[str, Any], path: Path) -> None:
        self._path = path
        wait, self._go = os.pipe()
        self._done, report = os.pipe()
        read = _memory("RssFile")
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._go)
            os.close(self._done)
            _child(config, path, read, wait, report)
        os.close(wait)
        os.close(report)

    def take(self) -> None:
        """Let it make steps, and wait for the end of its turn; one that failed has no more turns."""
        self._send(_GO)

    def cost(self) -> Mapping[str, Any] | None:
        """End it; return the fields of its :class:`RunCost`, or None if it failed."""
        self._send(_END)
        os.close(self._go)
        os.close(self._done)
        failed = os.waitpid(self._pid, 0)[1] != 0
        return None if failed else json.loads(self._path.with_suffix(".json").read_text())

    def _send(self, word: bytes) -> None:
        with suppress(BrokenPipeError):
            os.write(self._go, word)
        os.read(self._done, 1)


def _child(config: Mapping[str, Any], path: Path, read: int, wait: int, report: int) -> NoReturn:
    """Train by turns until there are no more, and write the cost. ``read``: bytes of files that the parent has read."""
    code = 1
    first, spent = True, time.process_time()

    def end_of_turn(_step: int) -> None:
        nonlocal first, spent
        if not first and time.process_time() - spent < _TURN_S:
            return
        os.write(report, b".")
        if os.read(wait, 1) != _GO:
            _write_cost(path, read)
            os._exit(0)
        first, spent = False, time.process_time()

    try:
        if os.read(wait, 1) == _GO:
            _train(config, path, steps=1 << 20, after_step=end_of_turn)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _write_cost(path: Path, read: int) -> None:
    lines = [line for line in read_json_lines(path / "metrics.jsonl", number="step").rows if "time/step_s" in line]
    steps = [_phases(line) for line in lines[1:] or lines]
    # Pages of files that its parent has read count for a fork only once it reads them too.
    own = _memory("RssFile")
    cost = RunCost(
        seconds={phase: min(step[phase] for step in steps) for phase in steps[0]},
        median_s=statistics.median(sum(step.values()) for step in steps),
        memory_bytes=_memory("VmHWM") - own + max(own, read),
        prompt_tokens=statistics.fmean(line["rollout/prompt_length"] for line in lines),
        response_tokens=statistics.fmean(line["rollout/response_length"] for line in lines),
    )
    path.with_suffix(".json").write_text(json.dumps(asdict(cost)))


def _phases(line: Mapping[str, float]) -> dict[str, float]:
    seconds = {phase: line.get(name, 0.0) for phase, name in PHASES.items()}
    return {**seconds, "the rest": max(0.0, line["time/step_s"] - sum(seconds.values()))}


def _train(
    config: Mapping[str, Any],
    path: Path,
    *,
    steps: int,
    after_step: Callable[[int], None] | None = None,
) -> None:
    from rlinf.train.run import run

    keys = [
        *(f"run.dir={path}", "run.resume=auto", f"run.max_steps={steps}", "sft.steps=0", "evaluation.size=0"),
        *("cluster.backend=local", "cluster.threads_per_worker=1", "checkpoint.every=0", "checkpoint.export=false"),
        *("checkpoint.best_metric=null", "evaluation.every=0", "logging.progress=none", "logging.tensorboard=false"),
        *("logging.samples_every=0", "algorithm.strict=false"),
    ]
    run(load_mapping(config, overrides=keys), report=False, after_step=after_step)


def _memory(name: str) -> int:
    """Return a number of bytes of this process from Linux: VmHWM is the most resident memory so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    sys.exit(_serve(Path(sys.argv[1]), int(sys.argv[2])))
