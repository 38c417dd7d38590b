"""The policy as an HTTP server of the driver: token ids for clients with them, the OpenAI protocol for others.

``POST /inference/v1/generate`` (token ids in, token ids and log-probabilities out),
``POST /v1/chat/completions`` (messages, tools, streaming) and ``GET /v1/models``. A client sends the token as
``Authorization: Bearer TOKEN`` and its session as ``X-Session-ID``, or both at once as
``Bearer TOKEN:SESSION``. Any client's API key can carry this form, and it wins over a header that the client
sets by itself.

The sampling distribution is that of the run. Temperature or top-p in requests are ignored, since the
learner's log-probabilities are those of one distribution. ``max_tokens`` and ``stop`` are followed.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from rlinf.data.messages import Completion
from rlinf.rollouts.agents.episodes import AgentEpisode
from rlinf.rollouts.agents.gateway import MODEL, Gateway
from rlinf.rollouts.agents.messages import BadRequest, answer_of, context_of, names_of, remember
from rlinf.rollouts.text.tokens.prompts import ChatTemplateError, PromptRenderer

_START_S = 30.0
_MOST_BYTES = 64 << 20
_WORDS = re.compile(r"\s*\S+|\s+")
"""Together they are the whole text."""
_REASONS = {"stop": "stop", "length": "length"}


class Endpoint:
    """A server in a thread of its own, on a free port."""

    def __init__(self, gateway: Gateway, renderer: PromptRenderer, address: str = "127.0.0.1") -> None:
        """``address``: the one that it listens on; others than this machine's own are for a cluster's machines."""
        self._gateway, self._renderer, self._address = gateway, renderer, address
        self._loop = asyncio.new_event_loop()
        self._started: threading.Event = threading.Event()
        self._failure: BaseException | None = None
        self.port = 0
        self._closed = False
        threading.Thread(target=self._serve, name="endpoint", daemon=True).start()
        if not self._started.wait(_START_S):
            raise TimeoutError(f"the endpoint did not start within {_START_S:g} s")
        if self._failure is not None:
            raise self._failure

    @property
    def url(self) -> str:
        """Of the OpenAI protocol."""
        return f"http://{self._address}:{self.port}/v1"

    def close(self) -> None:
        """Stop the server. May be called again."""
        if not self._closed:
            self._closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        app = web.Application(client_max_size=_MOST_BYTES)
        app.router.add_get("/v1/models", self._handler(self._models))
        app.router.add_post("/v1/chat/completions", self._handler(self._chat))
        app.router.add_post("/inference/v1/generate", self._handler(self._generate))
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        try:
            self._loop.run_until_complete(runner.setup())
            site = web.TCPSite(runner, self._address, 0)
            self._loop.run_until_complete(site.start())
            self.port = runner.addresses[0][1]
        except BaseException as error:
            self._failure = error
            self._started.set()
            return
        self._started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    def _handler(
        self, answer: Callable[[web.Request, str | None], Awaitable[web.StreamResponse]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Check the token; what can't be answered is an error as OpenAI writes it."""

        async def handle(request: web.Request) -> web.StreamResponse:
            key = request.headers.get("Authorization", "").removeprefix("Bearer ")
            token, _, session = key.partition(":")
            if not hmac.compare_digest(token.encode(), self._gateway.token.encode()):
                return _error(401, "the token is wrong: send it as Authorization: Bearer TOKEN", "invalid_api_key")
            try:
                return await answer(request, session or request.headers.get("X-Session-ID"))
            except ChatTemplateError as error:
                return _error(400, str(error), "invalid_request_error")
            except BadRequest as error:
                return _error(404 if error.code == "unknown_session" else 400, str(error), error.code)

        return handle

    async def _models(self, request: web.Request, session: str | None) -> web.StreamResponse:
        model = {"id": MODEL, "object": "model", "max_model_len": self._gateway.max_model_len}
        return web.json_response({"object": "list", "data": [model]})

    async def _generate(self, request: web.Request, session: str | None) -> web.StreamResponse:
        episode, body = self._gateway.episode(session), await _json(request)
        params = _object(body, "sampling_params")
        ids = body.get("token_ids")
        if not isinstance(ids, list) or not ids or not all(type(token) is int for token in ids):
            raise BadRequest("token_ids must be a list of integers that is not empty")
        # A model may embed more tokens than its tokenizer has, and draw them.
        drawn = {token for call in episode.calls for token in call.completion.token_ids}
        tokens = len(self._renderer.tokenizer)
        unknown = [token for token in ids if not 0 <= token < tokens and token not in drawn]
        if unknown:
            raise BadRequest(
                f"token_ids: {str(unknown[0])[:40]} is no token of the policy, whose ids go from 0 to {tokens - 1}"
            )
        done = await self._answered(episode, tuple(ids), params.get("max_tokens"), params.get("stop"))
        content = [
            {"token": f"token_id:{token}", "logprob": logprob}
            for token, logprob in zip(done.token_ids, done.logprobs, strict=True)
        ]
        choice = {
            "index": 0,
            "token_ids": list(done.token_ids),
            "logprobs": {"content": content},
            "finish_reason": _REASONS.get(done.finish_reason, done.finish_reason),
        }
        return web.json_response(
            {"request_id": f"rlinf-{episode.row_index}-{done.request_id}", "model": MODEL, "choices": [choice]}
        )

    async def _chat(self, request: web.Request, session: str | None) -> web.StreamResponse:
        episode, body = self._gateway.episode(session), await _json(request)
        if body.get("n", 1) != 1:
            raise BadRequest("n must be 1: a session is one conversation")
        messages, tools = body.get("messages") or [], body.get("tools") or []
        if not isinstance(messages, list) or not isinstance(tools, list):
            raise BadRequest("messages and tools must be lists")
        options = _object(body, "stream_options")
        names = names_of(messages, tools)
        context = context_of(episode, messages, names, tools, self._renderer)
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
        done = await self._answered(episode, context, limit, body.get("stop"))
        name = f"rlinf-{episode.row_index}-{done.request_id}"
        text = self._renderer.answered(done.token_ids, tools=tools)
        message = answer_of(text, with_tools=bool(tools), name=name)
        remember(episode, names, message, (*context, *done.token_ids))
        reason = "tool_calls" if "tool_calls" in message else _REASONS.get(done.finish_reason, done.finish_reason)
        about = {"id": name, "created": int(time.time()), "model": MODEL}
        usage = {
            "prompt_tokens": len(context),
            "completion_tokens": len(done.token_ids),
            "total_tokens": len(context) + len(done.token_ids),
        }
        if body.get("stream"):
            shown = usage if options.get("include_usage") else None
            return await _streamed(request, about, message, reason, shown)
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": reason}
        if body.get("logprobs"):
            choice["logprobs"] = {"content": self._logprobs(done)}
        return web.json_response({**about, "object": "chat.completion", "choices": [choice], "usage": usage})

    async def _answered(self, episode: AgentEpisode, context: tuple[int, ...], limit: Any, stop: Any) -> Completion:
        stops = [stop] if isinstance(stop, str) else stop or []
        if not isinstance(stops, list) or not all(isinstance(text, str) and text for text in stops):
            raise BadRequest("stop must be a text, or a list of texts")
        if limit is not None and (type(limit) is not int or limit < 1):
            raise BadRequest("max_tokens must be a whole number of at least 1")
        try:
            return await asyncio.wrap_future(self._gateway.submit(episode, context, limit, stops))
        except asyncio.CancelledError:
            self._gateway.withdraw(episode, context)
            raise

    def _logprobs(self, done: Completion) -> list[dict[str, Any]]:
        return [
            {"token": self._renderer.text([token]), "logprob": logprob, "bytes": None, "top_logprobs": []}
            for token, logprob in zip(done.token_ids, done.logprobs, strict=True)
        ]


async def _json(request: web.Request) -> dict[str, Any]:
    try:
        body = await request.json()
    except ValueError:
        raise BadRequest("the body must be JSON") from None
    if not isinstance(body, dict):
        raise BadRequest("the body must be an object")
    return body


def _object(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the object under ``name``; empty if there is none."""
    result = body.get(name) or {}
    if not isinstance(result, dict):
        raise BadRequest(f"{name} must be an object")
    return result


async def _streamed(
    request: web.Request,
    about: Mapping[str, Any],
    message: Mapping[str, Any],
    reason: str,
    usage: Mapping[str, int] | None,
) -> web.StreamResponse:
    """Send the answer as server-sent events, once it is complete.

    There is one for each word, one with its calls, one that ends it, and one with ``usage``."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    calls = [{"index": number, **call} for number, call in enumerate(message.get("tool_calls", ()))]
    words = _WORDS.findall(message["content"] or "")
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "" if words else message["content"]}]
    deltas += [{"content": word} for word in words]
    deltas += [{"tool_calls": calls}] if calls else []
    parts: list[tuple[dict[str, Any], str | None]] = [*((delta, None) for delta in deltas), ({}, reason)]
    events: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": end}]} for delta, end in parts
    ]
    events += [] if usage is None else [{"choices": [], "usage": usage}]
    for event in events:
        chunk: dict[str, Any] = {**about, "object": "chat.completion.chunk", **event}
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


def _error(status: int, message: str, code: str) -> web.Response:
    kind = "authentication_error" if status == 401 else "invalid_request_error"
    return web.json_response({"error": {"message": message, "type": kind, "code": code}}, status=status)
