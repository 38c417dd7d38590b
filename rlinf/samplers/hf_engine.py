"""The transformers sampler as an engine that is stepped by hand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

from rlinf.data.messages import Completion, SampleRequest
from rlinf.samplers.continuous import RunningRows
from rlinf.samplers.decoding import Row, rows_of


class HFEngine:
    """A :class:`rlinf.samplers.session.SteppedEngine` over :class:`~rlinf.samplers.continuous.RunningRows`."""

    def __init__(
        self,
        rows: RunningRows,
        *,
        version: Callable[[], int],
        most: int,
        max_model_len: int,
        on_close: Callable[[], Any],
    ) -> None:
        """``version`` gives that of the weights, ``most`` how many rows are decoded side by side."""
        self._rows, self._version, self._most, self._max_model_len = rows, version, most, max_model_len
        self._on_close = on_close
        self._waiting: deque[Row] = deque()
        self._asked: set[int] = set()

    @property
    def running(self) -> int:
        return len(self._waiting) + len(self._rows)

    def add(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        self._asked.update(request.request_id for request in requests)
        rows, done = rows_of(requests, self._max_model_len)
        self._waiting += rows
        return done

    def step(self, max_s: float) -> list[Completion]:
        """Decode one more token of every row; rows that wait join first."""
        room = min(self._most - len(self._rows), len(self._waiting))
        if room:
            self._rows.add([self._waiting.popleft() for _ in range(room)], self._version())
        return self._rows.step(self._version())

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        leaving = [row for row in self._waiting if row.request.request_id in request_ids]
        self._waiting = deque(row for row in self._waiting if row.request.request_id not in request_ids)
        return self._rows.remove(request_ids) + [row.completion((), (), (), "abort") for row in leaving]

    def end_session(self) -> None:
        self._waiting.clear()
        self._rows.remove(self._asked)
        self._on_close()
