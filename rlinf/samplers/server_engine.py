"""A model server as an engine: every request has a connection of its own, and a step waits for what arrives."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from rlinf.data.messages import Completion, SampleRequest
from rlinf.data.token_array import TokenArray
from rlinf.samplers.requests import limit_of
from rlinf.samplers.server_answers import Answer, OpenAnswers, Question


class ServerEngine:
    """A :class:`rlinf.samplers.session.SteppedEngine`."""

    def __init__(
        self,
        answers: OpenAnswers,
        *,
        question: Callable[[SampleRequest], Question],
        version: int,
        max_model_len: int,
        on_close: Callable[[], Any],
    ) -> None:
        """``question`` writes the HTTP request; ``version`` is that of the server's weights."""
        self._answers, self._question, self._version, self._max_model_len = answers, question, version, max_model_len
        self._on_close = on_close
        self._requests: dict[int, SampleRequest] = {}

    @property
    def running(self) -> int:
        return self._answers.open

    def add(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        questions: dict[int, Question] = {}
        done: list[Completion] = []
        for request in requests:
            self._requests[request.request_id] = request
            _, reason = limit_of(request, self._max_model_len)
            if reason is None:
                questions[request.request_id] = self._question(request)
                continue
            samples = range(request.first_sample, request.first_sample + request.n)
            done += [Completion.without_tokens(request.request_id, sample, reason) for sample in samples]
        self._answers.begin(questions)
        return done

    def step(self, max_s: float) -> list[Completion]:
        return [self._completion(answer) for answer in self._answers.poll(max_s)]

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        return [self._completion(answer) for answer in self._answers.abandon(request_ids)]

    def end_session(self) -> None:
        """Close the connections of all requests."""
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
