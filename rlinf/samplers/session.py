"""The session of every sampler: requests come and go while others are being answered."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from rlinf.data.messages import Completion, SampleRequest
from rlinf.samplers.requests import OpenRequests, answered, in_request_order


class SteppedEngine(Protocol):
    """An engine that is stepped by hand, and takes requests between any two steps."""

    @property
    def running(self) -> int:
        """Responses that the engine works on."""

    def add(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """Take requests; returns the completions of those that need no token."""

    def step(self, max_s: float) -> list[Completion]:
        """Make one step, which may wait for ``max_s`` seconds if a server does the work; returns what it finished."""

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        """End these requests; returns their responses as far as they are, with finish reason "abort"."""

    def end_session(self) -> None:
        """Drop what the engine works on."""


class EngineSession:
    """A :class:`rlinf.interfaces.SamplerSession`."""

    def __init__(self, engine: SteppedEngine) -> None:
        self.engine = engine
        self._requests = OpenRequests()
        self._done: list[Completion] = []

    @property
    def open(self) -> int:
        """Responses that are not handed out yet."""
        return self.engine.running + len(self._done)

    def submit(self, requests: Sequence[SampleRequest]) -> None:
        """Add requests; those that were added earlier go on."""
        self._requests.add(requests)
        self._done += self.engine.add(requests)

    def poll(self, max_s: float) -> list[Completion]:
        """Return the completions since the last call; steps the engine for at most ``max_s`` seconds, at least once.

        Raises:
            EngineDiedError: the engine failed, and failed again after its restart.
            ServerError: a request failed, or nothing came for the server's ``timeout_s``.
        """
        until = time.monotonic() + max_s
        while not self._done and self.engine.running:
            self._done += self.engine.step(max(0.0, until - time.monotonic()))
            if time.monotonic() >= until:
                break
        done, self._done = self._done, []
        self._requests.close(done)
        return done

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        """End these requests; returns their responses as far as they are, with finish reason "abort"."""
        aborted = self.engine.abort(request_ids)
        self._requests.close(aborted)
        return aborted

    def close(self) -> None:
        """End all requests."""
        self.engine.end_session()


class SessionSampler(ABC):
    """The part of an `interfaces.Sampler` that follows from its sessions."""

    @abstractmethod
    def session(self) -> EngineSession:
        """Open a session, the only one of this sampler until it is closed."""

    def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """All completions of all requests, ordered by (position of the request, sample index)."""
        return in_request_order(requests, self.stream(requests))

    def stream(self, requests: Sequence[SampleRequest]) -> Iterator[Completion]:
        """Yield the same completions as they finish, in a session of their own: between two of them, what a session
        allows may be called.

        A prompt that leaves no room for a token gives completions with finish reason "too_long" and no tokens.

        Raises:
            RuntimeError: another stream of this sampler is not exhausted (or closed) yet.
            EngineDiedError: the engine failed, and failed again after its restart.
            ServerError: a request failed, nothing came for the server's ``timeout_s``, or it lost its weights.
        """
        yield from answered(self.session(), requests)
