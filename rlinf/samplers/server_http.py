"""HTTP to a model server: JSON calls, and answers that arrive event by event until someone hangs up."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from rlinf.json_text import parse_json
from rlinf.redaction import public_url


class ServerError(RuntimeError):
    """The server could not be reached in time, or refused; the message has its address and its answer."""


class Server:
    """An address with a deadline. Every call opens a connection of its own, so calls may be made from any thread."""

    def __init__(self, base_url: str, *, timeout_s: float) -> None:
        """``base_url`` ends in ``/v1``; :attr:`root` is what the server has beside that.

        Raises:
            ValueError: the address is not one of HTTP.
        """
        self.base = base_url.rstrip("/")
        self.root = self.base.removesuffix("/v1")
        self.timeout_s = timeout_s
        if urlsplit(self.base).scheme not in ("http", "https"):
            raise ValueError(f"rollout.server.base_url must begin with http:// or https://, got {base_url!r}")

    def call(self, url: str, body: Mapping[str, Any] | None = None) -> Any:
        """The decoded answer to a POST of ``body`` (a GET for None).

        Raises:
            ServerError: no answer within ``timeout_s``, or a status other than success.
        """
        exchange = _Exchange(url, self.timeout_s)
        try:
            text = exchange.ask(body).read()
        except Exception as error:
            exchange.explain(error)
            raise
        finally:
            exchange.hang_up()
        return parse_json(text) if text else None

    def events(self, url: str, body: Mapping[str, Any]) -> EventStream:
        """The answer to a POST of ``body`` as server-sent events; nothing is sent before the first is asked for."""
        return EventStream(url, body, self.timeout_s)


class EventStream:
    """The JSON of server-sent events, one by one, until the server says ``[DONE]`` or :meth:`close` is called.

    The server has ``timeout_s`` to accept the request. How long it may then be silent is for the reader to decide, who
    sees other streams too: a request that waits for its turn is silent for good reasons.
    """

    def __init__(self, url: str, body: Mapping[str, Any], timeout_s: float) -> None:
        self._url, self._body = url, body
        self._exchange = _Exchange(url, timeout_s)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """
        Raises:
            ServerError: it refused, reported an error on the way, or hung up before the end. Nothing after ``close``.
        """
        try:
            for line in self._exchange.ask(self._body, patient=True):
                if not line.startswith(b"data:"):
                    continue  # blank lines, and comments that keep the connection alive
                data = line.removeprefix(b"data:").strip()
                if data == b"[DONE]":
                    return
                event = parse_json(data)
                if "error" in event:
                    raise ServerError(f"{self._url} failed on the way: {json.dumps(event['error'])[:500]}")
                yield event
            raise ServerError(f"{self._url} hung up in the middle of an answer: did the server die?")
        except Exception as error:
            # Whoever hung up does not care how the reading ended.
            if not self._exchange.closed:
                self._exchange.explain(error)
                raise
        finally:
            self._exchange.hang_up()

    def close(self) -> None:
        """Hangs up, from whatever thread: the reader's loop ends, and vLLM aborts the request."""
        self._exchange.hang_up()


class _Exchange:
    """One request on one connection."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self.closed = False
        self._url, self._timeout_s = public_url(url), timeout_s
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
        self._target = parts.path + (f"?{parts.query}" if parts.query else "")
        self._socket: socket.socket | None = None

    def ask(self, body: Mapping[str, Any] | None, *, patient: bool = False) -> http.client.HTTPResponse:
        """The answer to a POST (a GET for None), its status checked; ``patient`` takes the deadline off its content."""
        if not self.closed:
            self._connection.connect()
            self._socket = self._connection.sock
        if self.closed or self._socket is None:
            # Asked after the socket is there to be shut down: otherwise a request that nobody wants could begin.
            raise ConnectionAbortedError("closed before it began")
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": "application/json"}
        self._connection.request("GET" if data is None else "POST", self._target, data, headers)
        answer = self._connection.getresponse()
        if answer.status >= 400:
            text = answer.read().decode(errors="replace")[:500]
            raise ServerError(f"{self._url} answered {answer.status}: {text}")
        if patient:
            self._socket.settimeout(None)
        return answer

    def hang_up(self) -> None:
        """Ends the connection; a thread that reads from it finds the end."""
        self.closed = True
        if self._socket is None:
            return
        # Closing alone would leave a reader in another thread waiting for ever.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def explain(self, error: Exception) -> None:
        """Raises :class:`ServerError` with the address, where ``error`` comes from the network."""
        if isinstance(error, TimeoutError):
            message = f"{self._url} gave no answer within {self._timeout_s:g} s (rollout.server.timeout_s)"
            raise ServerError(message) from error
        if isinstance(error, OSError):
            raise ServerError(f"{self._url} can't be reached: {error}") from error
        if isinstance(error, http.client.HTTPException):
            raise ServerError(f"{self._url} hung up in the middle of an answer: {error!r}") from error
