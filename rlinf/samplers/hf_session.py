"""The session of the transformers sampler: requests come and go while others are being decoded."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

from rlinf.data.messages import Completion, SampleRequest
from rlinf.samplers.continuous import RunningRows
from rlinf.samplers.decoding import Row, rows_of
from rlinf.samplers.requests import OpenRequests


class HFSession:
    """A :class:`rlinf.interfaces.SamplerSession` over :class:`~rlinf.samplers.continuous.RunningRows`."""

    def __init__(
        self,
        rows: RunningRows,
        *,
        version: Callable[[], int],
        most: int,
        max_model_len: int,
        on_close: Callable[[], Any],
    ) -> None:
        """``version`` tells that of the weights, ``most`` how many rows are decoded side by side."""
        self._rows, self._version, self._most, self._max_model_len = rows, version, most, max_model_len
        self._on_close = on_close
        self._waiting: deque[Row] = deque()
        self._done: list[Completion] = []
        self._requests = OpenRequests()

    @property
    def open(self) -> int:
        """Responses that are not handed out yet."""
        return len(self._waiting) + len(self._rows) + len(self._done)

    def submit(self, requests: Sequence[SampleRequest]) -> None:
        """Adds requests; those that were added earlier go on."""
        self._requests.add(requests)
        rows, done = rows_of(requests, self._max_model_len)
        self._waiting += rows
        self._done += done

    def poll(self, max_s: float) -> list[Completion]:
        """Completions since the last call; decodes for at most ``max_s`` seconds, a token at least."""
        until = time.monotonic() + max_s
        while not self._done and (self._waiting or len(self._rows)):
            room = min(self._most - len(self._rows), len(self._waiting))
            if room:
                self._rows.add([self._waiting.popleft() for _ in range(room)], self._version())
            self._done += self._rows.step(self._version())
            if time.monotonic() >= until:
                break
        return self._hand_out()

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        """Ends these requests: their responses as far as they are, finish reason "abort"."""
        leaving = [row for row in self._waiting if row.request.request_id in request_ids]
        self._waiting = deque(row for row in self._waiting if row.request.request_id not in request_ids)
        aborted = self._rows.remove(request_ids) + [row.completion((), (), (), "abort") for row in leaving]
        self._requests.close(aborted)
        return aborted

    def close(self) -> None:
        """Ends all requests."""
        self._waiting.clear()
        self._rows.remove(self._requests.ids)
        self._on_close()

    def _hand_out(self) -> list[Completion]:
        done, self._done = self._done, []
        self._requests.close(done)
        return done
