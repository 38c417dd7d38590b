"""HTTP to a model server: JSON calls, and answers that arrive event by event until someone hangs up."""

from __future__ import annotations

import http.client
import os
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from rlinf.base.errors import UserError
from rlinf.base.http_client import Exchange, StatusError
from rlinf.base.json_text import parse_json
from rlinf.base.redaction import public_url

_MOST_IDLE = 128
"""Connections that are kept open for later requests."""


class ServerError(RuntimeError):
    """The server could not be reached in time, or refused; the message has its address and its answer."""


class Server:
    """An address with a deadline. Calls may be made from any thread; connections are kept and used again."""

    def __init__(self, base_url: str, *, timeout_s: float, api_key_env: str | None = None) -> None:
        """``base_url`` ends in ``/v1``; :attr:`root` is the address without that. ``api_key_env``: the environment
        variable with the key that requests carry.

        Raises:
            ValueError: the address is not one of HTTP.
            UserError: the environment variable is not set in this process.
        """
        self._headers = {"Content-Type": "application/json", **_authorisation(api_key_env)}
        self._idle: deque[http.client.HTTPConnection] = deque(maxlen=_MOST_IDLE)
        self.base = base_url.rstrip("/")
        self.root = self.base.removesuffix("/v1")
        self.name = public_url(self.base)
        """What messages call it: an address may have a password."""
        self.timeout_s = timeout_s
        if urlsplit(self.base).scheme not in ("http", "https"):
            raise ValueError(f"rollout.server.base_url must begin with http:// or https://, got {base_url!r}")

    def call(self, url: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the decoded answer to a POST of ``body`` (a GET for None).

        Raises:
            ServerError: no answer within ``timeout_s``, a status other than success, or an answer that is no JSON.
        """
        exchange = self._exchange(url)
        try:
            text = exchange.send(body).read()
            exchange.keep()
        except Exception as error:
            _explain(url, self.timeout_s, error)
            raise
        finally:
            exchange.hang_up()
        return _decoded(url, text) if text else None

    def events(self, url: str, body: Mapping[str, Any]) -> EventStream:
        """Return the answer to a POST of ``body`` as server-sent events; nothing is sent before the first is
        requested."""
        return EventStream(url, body, self._exchange(url), self.timeout_s)

    def _exchange(self, url: str) -> Exchange:
        return Exchange(url, self.timeout_s, self._headers, idle=self._idle)


def _authorisation(variable: str | None) -> dict[str, str]:
    """Return the header with the key in an environment variable; none for None."""
    if variable is None:
        return {}
    if not os.environ.get(variable):
        raise UserError(f"api_key_env: the environment variable {variable} is not set in the process of the client")
    return {"Authorization": f"Bearer {os.environ[variable]}"}


class EventStream:
    """The JSON of server-sent events, one by one, until the server sends ``[DONE]`` or :meth:`close` is called.

    The server has ``timeout_s`` to accept the request. How long it may then be silent is for the reader to
    decide, which sees other streams too: a request that waits for its turn is silent for good reasons.
    """

    def __init__(self, url: str, body: Mapping[str, Any], exchange: Exchange, timeout_s: float) -> None:
        self._url, self._body, self._exchange, self._timeout_s = public_url(url), body, exchange, timeout_s

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the events. Nothing is raised after ``close``.

        Raises:
            ServerError: it refused, reported an error on the way, or hung up before the end.
        """
        try:
            for line in self._exchange.send(self._body, patient=True):
                if not line.startswith(b"data:"):
                    continue  # blank lines, and comments that keep the connection alive
                data = line.removeprefix(b"data:").strip()
                if data == b"[DONE]":
                    self._exchange.finish()
                    return
                event = _decoded(self._url, data)
                if not isinstance(event, dict) or "error" in event:
                    raise ServerError(f"{self._url} failed on the way: {data.decode(errors='replace')[:500]}")
                yield event
            raise ServerError(f"{self._url} hung up in the middle of an answer: did the server die?")
        except Exception as error:
            # After a hang-up it does not matter how the reading ended.
            if not self._exchange.closed:
                _explain(self._url, self._timeout_s, error)
                raise
        finally:
            self._exchange.hang_up()

    def close(self) -> None:
        """Hangs up, from whatever thread: the reader's loop ends, and vLLM aborts the request."""
        self._exchange.hang_up()


def _decoded(url: str, text: bytes) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        begins = text[:80].decode(errors="replace")
        raise ServerError(f"{public_url(url)} answered without JSON: {begins!r}") from error


def _explain(url: str, timeout_s: float, error: Exception) -> None:
    """Raise :class:`ServerError` with the address, if ``error`` comes from the network."""
    location = public_url(url)
    if isinstance(error, StatusError):
        raise ServerError(f"{location} answered {error.status}: {error.text[:500]}") from error
    if isinstance(error, TimeoutError):
        raise ServerError(f"{location} gave no answer within {timeout_s:g} s (rollout.server.timeout_s)") from error
    if isinstance(error, OSError):
        raise ServerError(f"{location} can't be reached: {error}") from error
    if isinstance(error, http.client.HTTPException):
        raise ServerError(f"{location} hung up in the middle of an answer: {error!r}") from error
