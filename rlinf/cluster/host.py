"""The process of one worker: holds its object, runs its methods, and answers from a second thread while they run.

The group makes an actor class of :class:`Host`. Methods below the lines "control" and "pieces" are called in
concurrency groups of their own.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import ray

from rlinf.base import timeline
from rlinf.base.logs import LEVEL, show
from rlinf.base.redaction import redact_warnings
from rlinf.base.timeline import Span
from rlinf.cluster.api import Assembled, RankInfo
from rlinf.cluster.failure import Failure, capture
from rlinf.cluster.packing import Packed, pack, unpack

Made = TypeVar("Made")


@dataclass(frozen=True)
class HostProcess:
    """A worker's process and its node."""

    node_id: str
    address: str
    pid: int
    raylet: int
    """Process id of Ray's own daemon on that node, whose child the worker is."""
    stderr: str
    """Path of the file on that node that takes its standard error; empty where that is not a file."""


@dataclass(frozen=True)
class SharedArgument:
    """Stands in the packed arguments for the i-th value that is sent separately: shared, or another call's."""

    index: int


class Host:
    """Runs in the worker."""

    def __init__(self, visible_gpus: str | None = None) -> None:
        """``visible_gpus``: the names of this worker's GPUs, if Ray does not report which they are."""
        if visible_gpus is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = visible_gpus
        redact_warnings()
        node_id = ray.get_runtime_context().get_node_id()
        self._process = HostProcess(node_id, ray.util.get_node_ip_address(), os.getpid(), os.getppid(), _stderr_path())
        self._target: object | None = None
        self._running: tuple[str, int, float] | None = None
        self._stopped_streams: set[int] = set()

    def process(self) -> HostProcess:
        return self._process

    def build(self, packed: Packed, info: RankInfo) -> Failure | None:
        """Build the worker's object."""
        self._running = ("build", threading.get_ident(), time.monotonic())
        timeline.name_process(f"{info.group} {info.rank}")
        show(os.environ.get(LEVEL, "warning").upper(), f"{info.group} {info.rank}")
        try:
            self._target = unpack(packed, writable=True)(info)
        except (Exception, SystemExit) as error:
            return capture(error)
        finally:
            self._running = None
        return None

    def call(self, method: str, packed: Packed, *shared: Packed | Failure) -> Packed | Failure:
        """Run one method to its end."""
        return self._run(method, packed, shared, pack)

    def call_remote(
        self, method: str, packed: Packed, *shared: Packed | Failure
    ) -> tuple[Packed | Failure, Packed | Failure]:
        """Do the same for a method that returns a pair, whose halves are two objects."""
        made = self._run(method, packed, shared, lambda pair: (pack(pair[0]), pack(pair[1])))
        return (made, made) if isinstance(made, Failure) else made

    def _run(
        self, method: str, packed: Packed, shared: Sequence[Any], packed_as: Callable[[Any], Made]
    ) -> Made | Failure:
        self._running = (method, threading.get_ident(), time.monotonic())
        try:
            args, options = _arguments(packed, shared)
            with timeline.span(method):
                return packed_as(getattr(self._target, method)(*args, **options))
        except (Exception, SystemExit) as error:
            return capture(error)
        finally:
            self._running = None

    def stream(
        self, token: int, paired: bool, method: str, packed: Packed, *shared: Packed | Failure
    ) -> Iterator[Packed | Failure]:
        """Items of a generator method, until it ends or :meth:`stop_stream` is called with this token.

        ``paired``: items are pairs. The second half comes first: a reader that has the first one has both.
        """
        since = time.monotonic()
        self._running = (method, threading.get_ident(), since)
        try:
            args, options = _arguments(packed, shared)
            items = getattr(self._target, method)(*args, **options)
            for item in items:
                for half in reversed(item) if paired else (item,):
                    yield pack(half)
                if token in self._stopped_streams:
                    items.close()
                    break
        except (Exception, SystemExit) as error:
            yield capture(error)
        finally:
            timeline.record(method, since)
            self._stopped_streams.discard(token)
            self._running = None

    def close(self) -> None:
        """Let the worker's object free what it holds. Its errors have no effect any more."""
        with suppress(Exception):
            if hasattr(self._target, "close"):
                self._target.close()

    # --- pieces ---

    def pieces(self, count: int, packed: Packed, *shared: Packed | Failure) -> tuple[Packed | Failure | None, ...]:
        """None, then each of the ``count`` values of a function: as objects of their own."""
        try:
            (function, *args), _ = _arguments(packed, shared)
            return (None, *map(pack, function(*args)))
        except Exception as error:
            return (capture(error),) * (1 + count)

    # --- control ---

    def ping(self) -> None:
        """Proves by its answer that the process is there."""

    def free_port(self) -> int:
        """Return a free TCP port on this node."""
        with socket.socket() as probe:
            probe.bind((self._process.address, 0))
            return int(probe.getsockname()[1])

    def stop_stream(self, token: int) -> None:
        """End a stream at its next item."""
        self._stopped_streams.add(token)

    def record_spans(self, on: bool) -> list[Span]:
        """Begin to record what runs here, or end it and return the spans."""
        return timeline.switch(on)

    def stack(self) -> str:
        """Where the running call is now, innermost frame last."""
        running = self._running
        if running is None:
            return "it is idle now"
        method, thread, since = running
        stack = traceback.extract_stack(sys._current_frames().get(thread))
        ours = max((i for i, frame in enumerate(stack) if frame.filename == __file__), default=-1)
        lines = traceback.format_list(stack[ours + 1 :])
        return f"in {method} for {time.monotonic() - since:.1f} s, at:\n" + "".join(lines).rstrip()


def _arguments(packed: Packed, shared: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    args, options = unpack(packed, writable=True)
    for value in shared:
        if isinstance(value, Failure):
            raise RuntimeError(f"the call that was to give an argument failed:\n{value.traceback}")
    values = [unpack(value, writable=False) for value in shared]

    def real(value: Any) -> Any:
        if isinstance(value, Assembled):
            return value.of(real)
        return values[value.index] if isinstance(value, SharedArgument) else value

    return [real(value) for value in args], {name: real(value) for name, value in options.items()}


def _stderr_path() -> str:
    try:
        path = os.readlink(f"/proc/{os.getpid()}/fd/2")
    except OSError:  # no /proc on this system
        return ""
    return path if os.path.isfile(path) else ""
