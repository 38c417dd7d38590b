"""The session of the server sampler: every request has a connection of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from rlinf.data.messages import Completion, SampleRequest
from rlinf.data.token_array import TokenArray
from rlinf.samplers.requests import OpenRequests, limit_of
from rlinf.samplers.server_answers import Answer, OpenAnswers


class ServerSession:
    """A :class:`rlinf.interfaces.SamplerSession`."""

    def __init__(
        self,
        answers: OpenAnswers,
        *,
        body: Callable[[SampleRequest], Mapping[str, Any]],
        version: int,
        max_model_len: int,
        on_close: Callable[[], Any],
    ) -> None:
        """``body`` writes the HTTP request; ``version`` is that of the server's weights."""
        self._answers, self._body, self._version, self._max_model_len = answers, body, version, max_model_len
        self._on_close = on_close
        self._open = OpenRequests()
        self._requests: dict[int, SampleRequest] = {}
        self._done: list[Completion] = []

    @property
    def open(self) -> int:
        """Responses that are not handed out yet."""
        return self._answers.open + len(self._done)

    def submit(self, requests: Sequence[SampleRequest]) -> None:
        """Adds requests; those that were added earlier go on."""
        self._open.add(requests)
        bodies = {}
        for request in requests:
            self._requests[request.request_id] = request
            _, reason = limit_of(request, self._max_model_len)
            if reason is None:
                bodies[request.request_id] = self._body(request)
                continue
            samples = range(request.first_sample, request.first_sample + request.n)
            self._done += [Completion.without_tokens(request.request_id, sample, reason) for sample in samples]
        self._answers.begin(bodies)

    def poll(self, max_s: float) -> list[Completion]:
        """Completions since the last call; waits for at most ``max_s`` seconds.

        Raises:
            ServerError: a request failed, or nothing came for the server's ``timeout_s``.
        """
        done, self._done = self._done, []
        done += [self._completion(answer) for answer in self._answers.poll(0.0 if done else max_s)]
        self._open.close(done)
        return done

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        """Ends these requests: their responses as far as they are, finish reason "abort"."""
        aborted = [self._completion(answer) for answer in self._answers.abandon(request_ids)]
        self._open.close(aborted)
        return aborted

    def close(self) -> None:
        """Hangs up on all requests."""
        self._answers.close()
        self._on_close()

    def _completion(self, answer: Answer) -> Completion:
        return Completion(
            request_id=answer.request_id,
            sample_index=self._requests[answer.request_id].first_sample + answer.index,
            token_ids=TokenArray.ints(answer.tokens),
            logprobs=TokenArray.floats(answer.logprobs),
            finish_reason=answer.finish_reason or "abort",
            policy_version=TokenArray.ints([self._version] * len(answer.tokens)),
        )
