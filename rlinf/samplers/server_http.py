"""HTTP to a model server: JSON calls, and answers that arrive event by event until someone hangs up."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from rlinf.base.errors import UserError
from rlinf.base.json_text import parse_json
from rlinf.base.redaction import public_url

_MOST_IDLE = 128
"""Connections that are kept open for later requests."""
_END_S = 1.0
"""Seconds in which an answer has to end after its last event; later, its connection is closed instead of kept."""


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
        self.timeout_s = timeout_s
        if urlsplit(self.base).scheme not in ("http", "https"):
            raise ValueError(f"rollout.server.base_url must begin with http:// or https://, got {base_url!r}")

    def call(self, url: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the decoded answer to a POST of ``body`` (a GET for None).

        Raises:
            ServerError: no answer within ``timeout_s``, or a status other than success.
        """
        exchange = self._exchange(url)
        try:
            text = exchange.ask(body).read()
            exchange.keep()
        except Exception as error:
            exchange.explain(error)
            raise
        finally:
            exchange.hang_up()
        return parse_json(text) if text else None

    def events(self, url: str, body: Mapping[str, Any]) -> EventStream:
        """Return the answer to a POST of ``body`` as server-sent events; nothing is sent before the first is
        requested."""
        return EventStream(url, body, self._exchange(url))

    def _exchange(self, url: str) -> _Exchange:
        return _Exchange(url, self.timeout_s, self._headers, self._idle)


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

    def __init__(self, url: str, body: Mapping[str, Any], exchange: _Exchange) -> None:
        self._url, self._body, self._exchange = url, body, exchange

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the events. Nothing is raised after ``close``.

        Raises:
            ServerError: it refused, reported an error on the way, or hung up before the end.
        """
        try:
            for line in self._exchange.ask(self._body, patient=True):
                if not line.startswith(b"data:"):
                    continue  # blank lines, and comments that keep the connection alive
                data = line.removeprefix(b"data:").strip()
                if data == b"[DONE]":
                    self._exchange.finish()
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
    """One request on one connection: an idle one if there is one, else a new one."""

    def __init__(
        self, url: str, timeout_s: float, headers: Mapping[str, str], idle: deque[http.client.HTTPConnection]
    ) -> None:
        self.closed = False
        self._url, self._timeout_s, self._headers, self._idle = public_url(url), timeout_s, headers, idle
        parts = urlsplit(url)
        self._target = parts.path + (f"?{parts.query}" if parts.query else "")
        self._connection: http.client.HTTPConnection | None = None
        self._answer: http.client.HTTPResponse | None = None
        self._socket: socket.socket | None = None
        self._changing = threading.Lock()

    def ask(self, body: Mapping[str, Any] | None, *, patient: bool = False) -> http.client.HTTPResponse:
        """Return the answer to a POST (a GET for None), its status checked; ``patient`` drops its content's
        deadline."""
        data = json.dumps(body).encode() if body is not None else None
        answer = self._asked(data, kept=True) or self._asked(data, kept=False)
        assert answer is not None
        assert self._socket is not None
        if answer.status >= 400:
            text = answer.read().decode(errors="replace")[:500]
            raise ServerError(f"{self._url} answered {answer.status}: {text}")
        if patient:
            self._socket.settimeout(None)
        self._answer = answer
        return answer

    def _asked(self, data: bytes | None, *, kept: bool) -> http.client.HTTPResponse | None:
        """Return the answer over a kept connection, or over a new one.

        None if there is no kept connection, or the server has closed it."""
        try:
            connection = self._idle.pop() if kept else self._opened()
        except IndexError:
            return None
        with self._changing:
            self._connection, self._socket = connection, connection.sock
            if self.closed or self._socket is None:
                # Checked after the socket is there to be shut down: otherwise an aborted request could begin.
                connection.close()
                raise ConnectionAbortedError("closed before it began")
            self._socket.settimeout(self._timeout_s)
        try:
            connection.request("GET" if data is None else "POST", self._target, data, dict(self._headers))
            return connection.getresponse()
        except (ConnectionError, http.client.RemoteDisconnected):
            if not kept or self.closed:
                raise
            connection.close()  # the server ended it while it was idle
            return None

    def _opened(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=self._timeout_s)
        connection.connect()
        return connection

    def finish(self) -> None:
        """Read the end of an answer whose last event has arrived, then :meth:`keep` its connection."""
        if self._answer is None or self._socket is None:
            return
        with contextlib.suppress(OSError, http.client.HTTPException):
            self._socket.settimeout(_END_S)
            self._answer.read()
            self.keep()

    def keep(self) -> None:
        """Leave the connection to later requests, if the answer was read to its end and the server keeps it open."""
        with self._changing:
            connection, answer = self._connection, self._answer
            if self.closed or connection is None or connection.sock is None or answer is None or not answer.isclosed():
                return
            self._socket = self._connection = None
            self._idle.append(connection)

    def hang_up(self) -> None:
        """End the connection; a thread that reads from it gets the end."""
        with self._changing:
            self.closed = True
            if self._socket is None:
                return
            # Closing alone would leave a reader in another thread waiting for ever.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()

    def explain(self, error: Exception) -> None:
        """Raise :class:`ServerError` with the address, if ``error`` comes from the network."""
        if isinstance(error, TimeoutError):
            message = f"{self._url} gave no answer within {self._timeout_s:g} s (rollout.server.timeout_s)"
            raise ServerError(message) from error
        if isinstance(error, OSError):
            raise ServerError(f"{self._url} can't be reached: {error}") from error
        if isinstance(error, http.client.HTTPException):
            raise ServerError(f"{self._url} hung up in the middle of an answer: {error!r}") from error
