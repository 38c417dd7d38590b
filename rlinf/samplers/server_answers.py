"""The answers of a model server while they are written: each grows until it ends, or until nobody wants it any more."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from rlinf.samplers.server_http import Server, ServerError

_CONCURRENT = 128
"""Requests under way at a time; a request is one prompt with all its responses, so this fills most engines."""


@dataclass
class Answer:
    """One response as far as it has come."""

    request_id: int
    index: int
    """Among the responses to its request."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str | None = None


class OpenAnswers:
    """Completion requests at a server, a connection each. Closing a connection is how its request is aborted."""

    def __init__(self, server: Server, bodies: Mapping[int, Mapping[str, Any]]) -> None:
        """``bodies`` of the requests to begin, by their ids; each asks for a stream of ``n`` responses."""
        self._server = server
        self._url = f"{server.base}/completions"
        self._streams = {name: server.events(self._url, body) for name, body in bodies.items()}
        self._open = {(name, index): Answer(name, index) for name, body in bodies.items() for index in range(body["n"])}
        self._ended: deque[Answer] = deque()
        self._events: queue.SimpleQueue[tuple[int, dict[str, Any] | Exception | None]] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(max_workers=_CONCURRENT, thread_name_prefix="answers")
        for name in bodies:
            self._pool.submit(self._listen, name)

    def finished(self) -> Iterator[Answer]:
        """The responses as they end.

        Raises:
            ServerError: a request failed, or no request got a token for the server's ``timeout_s``.
        """
        while self._open or self._ended:
            while self._ended:
                yield self._ended.popleft()
            if self._open:
                self._take(*self._next_event())

    def abandon(self, request_ids: Collection[int]) -> list[Answer]:
        """Hangs up on these requests: their unfinished responses, with the tokens that have arrived.

        What is on its way is lost, whatever it is, so that a response's end does not depend on when it was cut off.
        """
        while True:
            try:
                self._take(*self._events.get_nowait())
            except queue.Empty:
                break
        for name in request_ids:
            if name in self._streams:
                self._streams.pop(name).close()
        return [self._open.pop(key) for key in list(self._open) if key[0] in request_ids]

    def close(self) -> None:
        """Hangs up on all that is left; threads end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for stream in self._streams.values():
            stream.close()

    def _listen(self, name: int) -> None:
        """In a thread: what the server says to a request, and None after its end."""
        stream = self._streams.get(name)
        if stream is None:
            return  # abandoned before its turn came
        try:
            for event in stream:
                self._events.put((name, event))
            self._events.put((name, None))
        except Exception as error:
            self._events.put((name, error))

    def _next_event(self) -> tuple[int, dict[str, Any] | Exception | None]:
        try:
            return self._events.get(timeout=self._server.timeout_s)
        except queue.Empty:
            raise ServerError(
                f"{self._url} sent nothing for {self._server.timeout_s:g} s (rollout.server.timeout_s) "
                f"with {len(self._open)} responses open: the server or its engine hangs"
            ) from None

    def _take(self, name: int, event: dict[str, Any] | Exception | None) -> None:
        """Records what arrived for request ``name``."""
        if name not in self._streams:
            return
        if isinstance(event, Exception):
            raise event
        if event is None:
            del self._streams[name]
            missing = sum(key[0] == name for key in self._open)
            if missing:
                raise ServerError(f"{self._url} ended an answer with {missing} responses unfinished")
            return
        for choice in event["choices"]:
            self._grow(self._open[name, choice["index"]], choice)

    def _grow(self, answer: Answer, choice: Mapping[str, Any]) -> None:
        if choice.get("token_ids") is None:
            raise ServerError(f"{self._url} returns no token ids: it must support return_token_ids (vLLM does)")
        answer.tokens += choice["token_ids"]
        if choice["token_ids"]:
            answer.logprobs += choice["logprobs"]["token_logprobs"]
        answer.finish_reason = choice.get("finish_reason")
        if answer.finish_reason not in (None, "stop", "length"):
            raise ServerError(f"{self._url} ended a response for another reason than ours: {answer.finish_reason}")
        if answer.finish_reason is not None:
            self._ended.append(self._open.pop((answer.request_id, answer.index)))
