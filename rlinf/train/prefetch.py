"""Batches that are worked on beside the learner: one step ahead of it, or continuously."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from rlinf.interfaces import ContinuousGeneration
from rlinf.types import Batch, Metrics

Collect = Callable[[int], tuple[Batch, Metrics]]


class Batches:
    """On policy: the loop collects each batch when it needs it, and nothing goes on beside the learner."""

    def ready(self, step: int) -> tuple[Batch, Metrics] | None:
        """The batch of ``step``, where it was collected ahead."""
        return None

    def begin(self, step: int) -> None:
        """Before the learner trains: lets samplers work on the batch of ``step`` meanwhile, where they may."""

    def settle(self) -> Metrics:
        """Before samplers get new weights, are evaluated or saved: nothing is under way afterwards.

        Raises what was raised meanwhile; every call inside has its own deadline.
        """
        return {}

    def state_dict(self) -> Mapping[str, Any]:
        """The state that a resumed run needs to train on the same batches."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """There is nothing to restore."""


class BesideTheLearner(Batches):
    """Work in a thread. In one process it takes turns with the learner."""

    def __init__(self, *, concurrent: bool) -> None:
        self.concurrent = concurrent
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Runs ``work`` until :meth:`join`."""

        def run() -> None:
            try:
                work()
            except BaseException as failure:
                self._failure = failure

        self._thread = threading.Thread(target=run, name="collect-ahead", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Waits for what was started, and raises what it raised."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure


class BatchPrefetcher(BesideTheLearner):
    """Collects the batch of step s + 1 with the weights of step s while the learner trains on that of step s.

    Samplers and learner never wait for each other in turn, and a batch is exactly one version old. The numbers are the
    same in one process.
    """

    def __init__(self, collect: Collect, *, concurrent: bool) -> None:
        super().__init__(concurrent=concurrent)
        self._collect = collect
        self._ready: tuple[int, Batch, Metrics] | None = None

    def ready(self, step: int) -> tuple[Batch, Metrics] | None:
        if self._ready is None:
            return None
        (made_for, batch, metrics), self._ready = self._ready, None
        if made_for != step:
            raise RuntimeError(f"the batch collected ahead is of step {made_for}, not {step}")
        return batch, metrics

    def begin(self, step: int) -> None:
        def collect() -> None:
            self._ready = (step, *self._collect(step))

        if self.concurrent:
            self.start(collect)
        else:  # in the main thread: environments that hang are interrupted by a timer that works nowhere else
            collect()

    def settle(self) -> Metrics:
        if self._thread is None:
            return {}
        began = time.perf_counter()
        self.join()
        return {"time/ahead_wait_s": time.perf_counter() - began}

    def state_dict(self) -> Mapping[str, Any]:
        """The batch that waits, so that a resumed run trains on the same one."""
        return {"ready": self._ready}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._ready = state["ready"]


class ContinuousBatches(BesideTheLearner):
    """Samplers go on while the learner trains, within the bound of `rollout.staleness`.

    In one process nothing goes on beside the learner: samplers work while a batch is waited for, on it and on those
    that may be begun with it.
    """

    def __init__(self, rollout: ContinuousGeneration, *, concurrent: bool) -> None:
        super().__init__(concurrent=concurrent)
        self._rollout = rollout
        self._stop = threading.Event()
        self._metrics: Metrics = {}

    def begin(self, step: int) -> None:
        def generate() -> None:
            self._metrics = self._rollout.generate(self._stop)

        if self.concurrent:
            self._stop.clear()
            self.start(generate)

    def settle(self) -> Metrics:
        self._stop.set()
        self.join()
        began = time.perf_counter()
        self._rollout.interrupt()
        metrics, self._metrics = self._metrics, {}
        return {**metrics, "time/interrupt_s": time.perf_counter() - began}
