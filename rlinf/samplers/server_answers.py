"""The engine of a model server: its answers grow while they are written, until they end or are no longer needed."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from rlinf.data.messages import Completion, SampleRequest
from rlinf.data.token_array import TokenArray
from rlinf.samplers.requests import limit_of
from rlinf.samplers.server_http import EventStream, Server, ServerError

_CONCURRENT = 128
"""Requests under way at a time; a request is one prompt with all its responses, so this fills most engines."""


@dataclass(frozen=True)
class Question:
    """An HTTP request for the responses to a prompt."""

    url: str
    body: Mapping[str, Any]
    prompt_tokens: int | None = None
    """How many the server must report, of a prompt whose pictures it reads itself."""


@dataclass
class _Answer:
    """One response as far as it has come."""

    request_id: int
    sample_index: int
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str | None = None


class ServerEngine:
    """A `session.SteppedEngine`: requests at a server, a connection each. Closing a connection aborts its request."""

    def __init__(
        self,
        server: Server,
        *,
        question: Callable[[SampleRequest], Question],
        version: int,
        max_model_len: int,
        on_close: Callable[[], Any],
    ) -> None:
        """``question`` writes the HTTP request; ``version`` is that of the server's weights."""
        self._server, self._question, self._version, self._max_model_len = server, question, version, max_model_len
        self._on_close = on_close
        self._questions: dict[int, Question] = {}
        self._streams: dict[int, EventStream] = {}
        self._open: dict[tuple[int, int], _Answer] = {}
        """By request and by number among its responses."""
        self._ended: list[_Answer] = []
        self._events: queue.SimpleQueue[tuple[int, dict[str, Any] | Exception | None]] = queue.SimpleQueue()
        self._last_event = time.monotonic()
        self._pool = ThreadPoolExecutor(max_workers=_CONCURRENT, thread_name_prefix="answers")

    @property
    def running(self) -> int:
        """Responses that are not handed out yet."""
        return len(self._open) + len(self._ended)

    def add(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """Send the requests, each for a stream of all its responses; return the completions that need no token."""
        done: list[Completion] = []
        sent: list[tuple[int, range]] = []
        for request in requests:
            samples = range(request.first_sample, request.first_sample + request.n)
            _, reason = limit_of(request, self._max_model_len)
            if reason is not None:
                done += [Completion.without_tokens(request.request_id, sample, reason) for sample in samples]
                continue
            self._questions[request.request_id] = self._question(request)
            sent.append((request.request_id, samples))
        if not self._open:
            self._last_event = time.monotonic()
        for name, samples in sent:
            one = self._questions[name]
            self._streams[name] = self._server.events(one.url, one.body)
            self._open |= {(name, index): _Answer(name, sample) for index, sample in enumerate(samples)}
            self._pool.submit(self._listen, name)
        return done

    def step(self, max_s: float) -> list[Completion]:
        """Return the responses that have ended since the last call; wait for at most ``max_s`` seconds for one.

        Raises:
            ServerError: a request failed, or no request got a token for the server's ``timeout_s``.
        """
        until = time.monotonic() + max_s
        while self._open and not self._ended:
            silent_until = self._last_event + self._server.timeout_s
            try:
                # What came while nothing was read, as during the learner's work, is no silence.
                self._take(*self._events.get(timeout=max(0.0, min(until, silent_until) - time.monotonic())))
            except queue.Empty:
                if time.monotonic() >= silent_until:
                    raise ServerError(
                        f"{self._server.name} sent nothing for {self._server.timeout_s:g} s (rollout.server.timeout_s) "
                        f"with {len(self._open)} responses open: the server or its engine hangs"
                    ) from None
                if time.monotonic() >= until:
                    break
        ended, self._ended = self._ended, []
        return [self._completion(answer) for answer in ended]

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        """Hang up on these requests; return their unfinished responses, with the tokens that have arrived.

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
        left = [key for key in self._open if key[0] in request_ids]
        return [self._completion(self._open.pop(key)) for key in left]

    def end_session(self) -> None:
        """Hang up on all that is left; threads end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for stream in self._streams.values():
            stream.close()
        self._on_close()

    def _completion(self, answer: _Answer) -> Completion:
        return Completion(
            request_id=answer.request_id,
            sample_index=answer.sample_index,
            token_ids=TokenArray.ints(answer.tokens),
            logprobs=TokenArray.floats(answer.logprobs),
            finish_reason=answer.finish_reason or "abort",
            policy_version=TokenArray.ints([self._version] * len(answer.tokens)),
        )

    def _listen(self, name: int) -> None:
        """Collect, in a thread, what the server sends for a request, and None after its end."""
        stream = self._streams.get(name)
        if stream is None:
            return  # abandoned before its turn came
        try:
            for event in stream:
                self._events.put((name, event))
            self._events.put((name, None))
        except Exception as error:
            self._events.put((name, error))

    def _take(self, name: int, event: dict[str, Any] | Exception | None) -> None:
        """Record what arrived for request ``name``."""
        self._last_event = time.monotonic()
        if name not in self._streams:
            return
        if isinstance(event, Exception):
            raise event
        if event is None:
            del self._streams[name]
            missing = sum(key[0] == name for key in self._open)
            if missing:
                raise ServerError(f"{self._server.name} ended an answer with {missing} responses unfinished")
            return
        expected, read = self._questions[name].prompt_tokens, event.get("prompt_token_ids")
        if expected is not None and read is not None and len(read) != expected:
            raise ServerError(
                f"{self._server.name} makes {len(read)} tokens of a prompt with pictures, and this run {expected}: "
                "start it with the run's image processor (vllm serve --mm-processor-kwargs, or its "
                "preprocessor_config.json)"
            )
        for choice in event["choices"]:
            self._grow((name, choice["index"]), choice)

    def _grow(self, key: tuple[int, int], choice: Mapping[str, Any]) -> None:
        answer = self._open[key]
        if choice.get("token_ids") is None:
            raise ServerError(f"{self._server.name} returns no token ids: it must support return_token_ids (vLLM does)")
        answer.tokens += choice["token_ids"]
        if choice["token_ids"]:
            answer_logprobs = choice["logprobs"]
            answer.logprobs += answer_logprobs.get("token_logprobs") or [
                one["logprob"] for one in answer_logprobs["content"]
            ]
        answer.finish_reason = choice.get("finish_reason")
        if answer.finish_reason not in (None, "stop", "length"):
            raise ServerError(
                f"{self._server.name} ended a response for another reason than ours: {answer.finish_reason}"
            )
        if answer.finish_reason is not None:
            self._ended.append(self._open.pop(key))
