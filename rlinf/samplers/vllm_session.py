"""The session of the vLLM sampler: its engine takes requests between any two steps."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Protocol

from rlinf.data.messages import Completion, SampleRequest
from rlinf.samplers.requests import OpenRequests


class SteppedEngine(Protocol):
    """A sampler around an engine that is stepped by hand."""

    @property
    def running(self) -> int: ...

    def add(self, requests: Sequence[SampleRequest]) -> list[Completion]: ...

    def step(self) -> list[Completion]: ...

    def abort(self, request_ids: Collection[int]) -> list[Completion]: ...

    def end_session(self) -> None: ...


class VllmSession:
    """A :class:`rlinf.interfaces.SamplerSession`."""

    def __init__(self, engine: SteppedEngine) -> None:
        self._engine = engine
        self._requests = OpenRequests()
        self._done: list[Completion] = []

    @property
    def open(self) -> int:
        """Responses that are not handed out yet."""
        return self._engine.running + len(self._done)

    def submit(self, requests: Sequence[SampleRequest]) -> None:
        """Adds requests; those that were added earlier go on."""
        self._requests.add(requests)
        self._done += self._engine.add(requests)

    def poll(self, max_s: float) -> list[Completion]:
        """Completions since the last call; steps the engine for at most ``max_s`` seconds, once at least.

        Raises:
            EngineDiedError: the engine failed, and failed again after its restart.
        """
        until = time.monotonic() + max_s
        while not self._done and self._engine.running:
            self._done += self._engine.step()
            if time.monotonic() >= until:
                break
        done, self._done = self._done, []
        self._requests.close(done)
        return done

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        """Ends these requests: their responses as far as they are, finish reason "abort"."""
        aborted = self._engine.abort(request_ids)
        self._requests.close(aborted)
        return aborted

    def close(self) -> None:
        """Ends all requests."""
        self._engine.end_session()
