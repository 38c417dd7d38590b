"""Between agents, which send requests at any time over HTTP, and the sampler, driven by the rollout's own thread."""

from __future__ import annotations

import queue
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from hashlib import blake2b

from rlinf.data.messages import Completion, SampleRequest, SamplingParams
from rlinf.interfaces import SamplerSession
from rlinf.rollouts.agents.episodes import AgentEpisode, Call
from rlinf.rollouts.agents.messages import BadRequest

MODEL = "policy"
"""The name that the endpoint serves the policy under."""


@dataclass(frozen=True)
class _PendingRequest:
    """A request on its way."""

    episode: AgentEpisode
    context: tuple[int, ...]
    max_new_tokens: int
    stop: tuple[str, ...]
    answer: Future[Completion]
    since: float


class Gateway:
    """The episodes that are open, and their requests. :meth:`submit` may be called from any thread."""

    def __init__(self, *, max_model_len: int, max_calls: int) -> None:
        """``max_model_len``: tokens of a context and its response; ``max_calls`` of an episode."""
        self.max_model_len, self.max_calls = max_model_len, max_calls
        self.token = secrets.token_urlsafe(24)
        """What a client must send to be answered."""
        self._episodes: dict[str, AgentEpisode] = {}
        self._params: SamplingParams | None = None
        self._incoming: queue.SimpleQueue[_PendingRequest] = queue.SimpleQueue()
        self._running: dict[int, _PendingRequest] = {}
        self._next_request = 0

    @property
    def params(self) -> SamplingParams:
        """How the open episodes are sampled."""
        if self._params is None:
            raise BadRequest("no episode is open")
        return self._params

    def open(self, episodes: Sequence[AgentEpisode], params: SamplingParams) -> list[str]:
        """Open a session for each episode; return their names."""
        self._params = params
        names = [secrets.token_urlsafe(12) for _ in episodes]
        self._episodes = dict(zip(names, episodes, strict=True))
        return names

    def close(self) -> None:
        """End all sessions: their remaining requests are refused."""
        for pending in [*self._running.values(), *self._arrived(0.0)]:
            _refuse(pending, "the episode is over")
        self._episodes, self._running, self._params = {}, {}, None

    def episode(self, name: str | None) -> AgentEpisode:
        """Return the episode of a session.

        Raises:
            BadRequest: no such session is open.
        """
        episode = self._episodes.get(name or "")
        if episode is None or episode.over:
            raise BadRequest("no such session: name an open one in the header X-Session-ID", "unknown_session")
        return episode

    def submit(
        self, episode: AgentEpisode, context: tuple[int, ...], max_new_tokens: int | None, stop: Sequence[str] = ()
    ) -> Future[Completion]:
        """Request the policy's response after ``context``, up to the end of one of the texts ``stop``.

        Raises:
            BadRequest: there is no room for a token, or the episode has made all its calls.
        """
        if len(context) >= self.max_model_len:
            message = f"the context has {len(context)} tokens, and {self.max_model_len} are the most with the response"
            raise BadRequest(message, "context_length_exceeded")
        if sum(episode.request_counts.values()) >= self.max_calls:
            message = f"env.max_turns allows {self.max_calls} calls in an episode"
            raise BadRequest(message, "too_many_calls")
        episode.request_counts[context] = episode.request_counts.get(context, 0) + 1
        limit = min(self.params.max_new_tokens, max_new_tokens or self.params.max_new_tokens)
        pending = _PendingRequest(episode, context, limit, tuple(stop), Future(), time.monotonic())
        self._incoming.put(pending)
        return pending.answer

    def pump(
        self, session: SamplerSession, max_s: float, *, until_stop: Callable[[Completion, Sequence[str]], Completion]
    ) -> bool:
        """Hands requests to the sampler and its responses back; returns after about ``max_s`` seconds.

        ``until_stop`` cuts a response at the texts that end it. Returns whether the sampler had anything to do.
        """
        arrived = self._arrived(0.0 if self._running else max_s)
        if arrived:
            session.submit([self._request(pending) for pending in arrived])
        # A client that timed out requests the same again: what it never received must not train.
        self._abort([name for name, pending in self._running.items() if pending.answer.cancelled()], session)
        if not self._running:
            return False
        for completion in session.poll(max_s):
            pending = self._running.pop(completion.request_id)
            done = until_stop(completion, pending.stop)
            if not pending.episode.over and pending.answer.set_running_or_notify_cancel():
                pending.episode.calls.append(Call(pending.context, done, time.monotonic() - pending.since))
                pending.answer.set_result(done)
        return True

    def end(self, episode: AgentEpisode, session: SamplerSession) -> None:
        """End an episode whose agent has returned, or was given up: none of its remaining requests counts."""
        episode.over = True
        left = [name for name, pending in self._running.items() if pending.episode is episode]
        self._abort(left, session)
        for name in left:
            if name in self._running:
                _refuse(self._running[name], "the episode is over")

    def withdraw(self, episode: AgentEpisode, context: tuple[int, ...]) -> None:
        """Take back a request whose client left before the answer: it is none of the episode's calls."""
        episode.request_counts[context] -= 1

    def _abort(self, names: Sequence[int], session: SamplerSession) -> None:
        """Stop requests in the sampler; those that it cannot stop at once are answered by a later poll."""
        for completion in session.abort(names) if names else ():
            del self._running[completion.request_id]

    def _arrived(self, wait_s: float) -> list[_PendingRequest]:
        arrived: list[_PendingRequest] = []
        try:
            arrived.append(self._incoming.get(timeout=wait_s) if wait_s else self._incoming.get_nowait())
            while True:
                arrived.append(self._incoming.get_nowait())
        except queue.Empty:
            pass
        for pending in [pending for pending in arrived if pending.episode.over]:
            arrived.remove(pending)
            _refuse(pending, "the episode is over")
        return arrived

    def _request(self, pending: _PendingRequest) -> SampleRequest:
        """Draws are named by the context itself: the order in which an agent's calls arrive changes none."""
        name, self._next_request = self._next_request, self._next_request + 1
        self._running[name] = pending
        episode = pending.episode
        digest = blake2b(repr(pending.context).encode(), digest_size=8).digest()
        times = sum(call.context == pending.context for call in episode.calls) + sum(
            one.episode is episode and one.context == pending.context and not one.answer.cancelled()
            for one in self._running.values()
        )
        return SampleRequest(
            request_id=name,
            prompt_ids=pending.context,
            n=1,
            params=replace(self.params, max_new_tokens=pending.max_new_tokens),
            key=(*episode.key, int.from_bytes(digest, "little") >> 1, times),
            first_sample=episode.sample,
            group=episode.group,
        )


def _refuse(pending: _PendingRequest, words: str) -> None:
    if not pending.answer.done():
        pending.answer.set_exception(BadRequest(words, "unknown_session"))
