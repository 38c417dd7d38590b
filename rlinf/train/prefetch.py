"""Batches that are worked on in parallel with the learner: whole ones ahead of it, or continuously."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from rlinf.data.batch import Batch
from rlinf.data.messages import Metrics
from rlinf.data.remote_rows import RemoteRows
from rlinf.interfaces import ContinuousGeneration

Collect = Callable[[int], tuple[Batch | RemoteRows, Metrics]]

LEARNER_IDLE, SAMPLERS_IDLE = "time/learner_idle_s", "time/samplers_idle_s"
"""Who waits for whom where both work at the same time: the learner for samples, samplers for newer weights."""


class BatchSource:
    """On policy: the loop collects each batch when it needs it, and nothing goes on in parallel with the learner."""

    def ready(self, step: int) -> tuple[Batch | RemoteRows, Metrics] | None:
        """Return the batch of ``step``, if it was collected ahead."""
        return None

    def go_on(self, step: int) -> None:
        """Let samplers work with the weights after ``step`` iterations from now on, until the batch of it is taken.

        The state of the run is marked before. Samplers that take turns with the learner do nothing yet.
        """

    def begin(self, step: int, *, first: Callable[[], None] | None = None) -> None:
        """Let samplers work on the batch of ``step`` while the learner trains, if they may; on ``first`` before it."""

    def start(self, work: Callable[[], None]) -> None:
        """Let samplers do ``work`` while the learner trains, where both can work at the same time."""
        work()

    def settle(self) -> Metrics:
        """Before samplers get new weights, are evaluated or saved: nothing is under way afterwards.

        Raises what was raised meanwhile; every call inside has its own deadline.
        """
        return {}

    def state_dict(self) -> Mapping[str, Any]:
        """Return the state that a resumed run needs to train on the same batches."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """There is nothing to restore."""


class BackgroundWork(BatchSource):
    """Work in a thread. In one process it takes turns with the learner."""

    def __init__(self, *, concurrent: bool) -> None:
        self.concurrent = concurrent
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self.ended = 0.0
        """When the work that was started last was done, by the performance counter."""

    def start(self, work: Callable[[], None]) -> None:
        """Run ``work`` until :meth:`join`; in one process at once, in the main thread: environments that hang are
        interrupted by a timer that works nowhere else."""
        if not self.concurrent:
            work()
            return

        def run() -> None:
            try:
                work()
            except BaseException as failure:
                self._failure = failure
            self.ended = time.perf_counter()

        self._thread = threading.Thread(target=run, name="collect-ahead", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for what was started, and raise what it raised."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure


class BatchPrefetcher(BackgroundWork):
    """Collects whole batches: that of step s + S with the weights of step s while the learner trains on that of step s.

    Samplers and learner never wait for each other in turn, and a batch is exactly S versions old. The numbers are the
    same in one process. Samplers begin as soon as they have new weights: logs and checkpoints are written meanwhile.
    """

    def __init__(self, collect: Collect, *, staleness: int, last: int, concurrent: bool) -> None:
        """``last``: the step that the last batch is for."""
        super().__init__(concurrent=concurrent)
        self._collect, self.staleness, self.last = collect, staleness, last
        self._ready: list[tuple[int, Batch | RemoteRows, Metrics]] = []
        """Oldest first."""

    def ready(self, step: int) -> tuple[Batch | RemoteRows, Metrics] | None:
        if not self._ready:
            return None
        made_for, batch, metrics = self._ready.pop(0)
        if made_for != step:
            raise RuntimeError(f"the batch collected ahead is of step {made_for}, not {step}")
        return batch, metrics

    def go_on(self, step: int) -> None:
        """Start on the same batches as :meth:`begin` will, if the one of ``step`` is there."""
        if self.concurrent and self._ready:
            self.begin(step + 1)

    def begin(self, step: int, *, first: Callable[[], None] | None = None) -> None:
        """Start on the batches up to S steps ahead, of which ``step`` comes next, with the samplers' present
        weights; with :meth:`go_on` they are under way."""
        if self._thread is not None:
            return
        newest = self._ready[-1][0] + 1 if self._ready else step
        steps = range(newest, min(step - 1 + self.staleness, self.last) + 1)

        def collect() -> None:
            if first is not None:
                first()
            for one in steps:
                self._ready.append((one, *self._collect(one)))

        if steps or first is not None:
            self.start(collect)

    def settle(self) -> Metrics:
        if self._thread is None:
            return {}
        began = time.perf_counter()
        self.join()
        waited = time.perf_counter() - began
        return {LEARNER_IDLE: waited, SAMPLERS_IDLE: max(0.0, began - self.ended)}

    def state_dict(self) -> Mapping[str, Any]:
        """Return the batches that wait, so that a resumed run trains on the same ones."""
        return {"ready": list(self._ready)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Earlier versions had one batch at most, or None; an on-policy run has none."""
        ready = state.get("ready")
        self._ready = [ready] if isinstance(ready, tuple) else list(ready or ())


class ContinuousBatches(BackgroundWork):
    """Samplers go on while the learner trains, within the bound of `rollout.staleness`.

    In one process nothing runs in parallel with the learner: samplers work while a batch is waited for, on it and
    on those that may be begun with it.
    """

    def __init__(self, rollout: ContinuousGeneration, *, concurrent: bool) -> None:
        super().__init__(concurrent=concurrent)
        self._rollout = rollout
        self._stop = threading.Event()
        self._idle_s = 0.0
        """Since samplers got their weights."""

    def ready(self, step: int) -> tuple[Batch | RemoteRows, Metrics] | None:
        """Return nothing: the rollout has what is complete. It is free for the caller from now on."""
        self._halt()
        return None

    def go_on(self, step: int) -> None:
        if self.concurrent:
            self._generate(lambda: None, step)

    def begin(self, step: int, *, first: Callable[[], None] | None = None) -> None:
        def evaluated_first() -> None:
            if first is not None:
                if self.concurrent:
                    self._rollout.interrupt()
                first()

        self._generate(evaluated_first, None)

    def settle(self) -> Metrics:
        self._halt()
        began = time.perf_counter()
        self._rollout.interrupt()
        idle, self._idle_s = self._idle_s, 0.0
        metrics = {SAMPLERS_IDLE: idle} if self.concurrent else {}
        return {**metrics, "time/interrupt_s": time.perf_counter() - began}

    def _generate(self, first: Callable[[], None], version: int | None) -> None:
        def generate() -> None:
            first()
            if self.concurrent:
                self._idle_s += self._rollout.generate(self._stop, version=version)

        self._stop.clear()
        self.start(generate)

    def _halt(self) -> None:
        """Wait until the thread has left the rollout to the caller; samplers go on with what they have."""
        self._stop.set()
        self.join()
