"""Batches that are worked on beside the learner: whole ones ahead of it, or continuously."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from rlinf.interfaces import ContinuousGeneration
from rlinf.types import Batch, Metrics

Collect = Callable[[int], tuple[Batch, Metrics]]

LEARNER_IDLE, SAMPLERS_IDLE = "time/learner_idle_s", "time/samplers_idle_s"
"""Who waits for whom where both work at the same time: the learner for samples, samplers for newer weights."""


class Batches(Protocol):
    """What works on batches before the loop collects them."""

    def ready(self, step: int) -> tuple[Batch, Metrics] | None:
        """The batch of ``step``, where it was collected ahead."""

    def begin(self, step: int) -> None:
        """Before the learner trains: lets samplers work on the batch of ``step`` meanwhile, where they may."""

    def settle(self) -> Metrics:
        """Before samplers get new weights, are evaluated or saved: nothing is under way afterwards."""

    def state_dict(self) -> Mapping[str, Any]:
        """The state that a resumed run needs to train on the same batches."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class BatchPrefetcher:
    """Collects whole batches beside the learner, where that is asked for.

    On policy none is ever ready, and the loop collects each batch when it needs it. With staleness S, the batch of step
    s + S is collected with the weights of step s while the learner trains on that of step s: samplers and learner never
    wait for each other in turn, and a batch is exactly S versions old. In one process the two take turns; the numbers
    are the same.
    """

    def __init__(self, collect: Collect, *, staleness: int, last: int, concurrent: bool) -> None:
        """``last``: the step that the last batch is for."""
        self._collect, self.staleness, self.last, self._concurrent = collect, staleness, last, concurrent
        self._ready: list[tuple[int, Batch, Metrics]] = []
        """Oldest first."""
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._ended = 0.0

    def ready(self, step: int) -> tuple[Batch, Metrics] | None:
        """The batch of ``step``, where it was collected ahead."""
        if not self._ready:
            return None
        made_for, batch, metrics = self._ready.pop(0)
        if made_for != step:
            raise RuntimeError(f"the batch collected ahead is of step {made_for}, not {step}")
        return batch, metrics

    def begin(self, step: int) -> None:
        """Starts on the batches up to S steps ahead, of which ``step`` comes next, with the weights that the samplers
        hold now. Nothing when on policy."""
        first = self._ready[-1][0] + 1 if self._ready else step
        steps = range(first, min(step - 1 + self.staleness, self.last) + 1)
        if not steps:
            return
        if not self._concurrent:
            # Here, in the main thread: environments that hang are interrupted by a timer that works nowhere else.
            self._fill(steps)
            return
        self._thread = threading.Thread(target=self._run, args=(steps,), name="collect-ahead", daemon=True)
        self._thread.start()

    def settle(self) -> Metrics:
        """Waits for what :meth:`begin` started, raising what it raised; every call inside has its own deadline.

        Must come before the samplers get new weights, are evaluated or saved.
        """
        if self._thread is None:
            return {}
        began = time.perf_counter()
        self._thread.join()
        self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        waited = time.perf_counter() - began
        return {LEARNER_IDLE: waited, SAMPLERS_IDLE: max(0.0, began - self._ended)}

    def _run(self, steps: range) -> None:
        try:
            self._fill(steps)
        except BaseException as failure:
            self._failure = failure
        self._ended = time.perf_counter()

    def _fill(self, steps: range) -> None:
        for step in steps:
            self._ready.append((step, *self._collect(step)))

    def state_dict(self) -> Mapping[str, Any]:
        """The batches that wait, so that a resumed run trains on the same ones."""
        return {"ready": list(self._ready)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Earlier versions had one batch at most, or None."""
        ready = state["ready"]
        self._ready = [ready] if isinstance(ready, tuple) else list(ready or ())


class ContinuousBatches:
    """Batches of samplers that go on while the learner trains, within the bound of `rollout.staleness`.

    In one process nothing goes on beside the learner: samplers work while a batch is waited for, on it and on those
    that may be begun with it.
    """

    def __init__(self, rollout: ContinuousGeneration, *, concurrent: bool) -> None:
        self._rollout, self._concurrent = rollout, concurrent
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._metrics: Metrics = {}

    def ready(self, step: int) -> None:
        """None: a batch is whole when the loop has collected the rest of it."""

    def begin(self, step: int) -> None:
        """Lets samplers go on beside the learner."""
        if self._concurrent:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name="generate", daemon=True)
            self._thread.start()

    def settle(self) -> Metrics:
        """Interrupts the samplers, raising what they raised meanwhile; every call inside has its own deadline."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        began = time.perf_counter()
        self._rollout.interrupt()
        metrics, self._metrics = self._metrics, {}
        return {**metrics, "time/interrupt_s": time.perf_counter() - began}

    def _run(self) -> None:
        try:
            self._metrics = self._rollout.generate(self._stop)
        except BaseException as failure:
            self._failure = failure

    def state_dict(self) -> Mapping[str, Any]:
        """Nothing: what is open belongs to the rollout."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing."""
