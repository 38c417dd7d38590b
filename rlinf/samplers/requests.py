"""Checks of requests that every sampler makes, and the order of its answers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from rlinf.data.messages import Completion, SampleRequest
from rlinf.interfaces import SamplerSession


class OpenRequests:
    """The requests of a session that are not answered yet."""

    def __init__(self) -> None:
        self._left: dict[int, int] = {}

    def add(self, requests: Sequence[SampleRequest]) -> None:
        """Raise ValueError for requests that no sampler can serve, or whose id belongs to one that is open."""
        check_requests(requests)
        for request in requests:
            if request.request_id in self._left:
                raise ValueError(f"request {request.request_id} is open: request_id must be unique among open requests")
        self._left.update((request.request_id, request.n) for request in requests)

    def close(self, completions: Iterable[Completion]) -> None:
        """Count responses that are handed out."""
        for completion in completions:
            self._left[completion.request_id] -= 1
            if not self._left[completion.request_id]:
                del self._left[completion.request_id]


def check_requests(requests: Sequence[SampleRequest]) -> None:
    """Raise ValueError for requests that no sampler can serve; the message names the request."""
    seen: set[int] = set()
    for request in requests:
        name = f"request {request.request_id}"
        if request.request_id in seen:
            raise ValueError(f"{name} appears twice: request_id must be unique among the requests of a call")
        seen.add(request.request_id)
        if not request.prompt_ids:
            raise ValueError(f"{name} has an empty prompt: at least one token (for example BOS) is needed")
        if request.n < 1 or (request.prefix and request.n != 1):
            raise ValueError(f"{name} has n={request.n}: n is at least 1, and exactly 1 with a prefix")


def answered(session: SamplerSession, requests: Sequence[SampleRequest]) -> Iterator[Completion]:
    """Yield completions of ``requests`` as they finish, in a session that is theirs alone and is closed after them."""
    try:
        session.submit(requests)
        while session.open:
            yield from session.poll(math.inf)
    finally:
        session.close()


def limit_of(request: SampleRequest, max_model_len: int) -> tuple[int, str | None]:
    """Return how many new tokens ``request`` may get, and the finish reason if not even one.

    ``max_new_tokens`` bounds the whole response, its prefix included, so that a continued response ends where it
    would have ended uninterrupted. Prompt and response together take at most ``max_model_len`` tokens.
    """
    written = len(request.prefix)
    if len(request.prompt_ids) >= max_model_len:
        return 0, "too_long"
    limit = min(request.params.max_new_tokens, max_model_len - len(request.prompt_ids)) - written
    return (limit, None) if limit > 0 else (0, "length")


def in_request_order(requests: Sequence[SampleRequest], completions: Iterable[Completion]) -> list[Completion]:
    """``completions`` by (position of the request, sample index)."""
    positions = {request.request_id: position for position, request in enumerate(requests)}
    return sorted(completions, key=lambda done: (positions[done.request_id], done.sample_index))
