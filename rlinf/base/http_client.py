"""HTTP over the standard library: kept connections, whole deadlines, and answers that another thread can end.

``requests`` and ``httpx`` have neither: their timeouts start again with every byte, and a thread that reads an answer
can't be interrupted from outside.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import threading
import urllib.request
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

_END_S = 1.0
"""Seconds in which an answer has to end after its last event; later, its connection is closed instead of kept."""
_REFUSAL_BYTES = 2000


class StatusError(Exception):
    """The server refused or redirected: no redirect is followed, which would hand the headers to another server."""

    def __init__(self, status: int, text: str) -> None:
        """``text``: the beginning of the answer."""
        super().__init__(f"{status}: {text}")
        self.status, self.text = status, text


class Exchange:
    """One request on one connection: an idle one if there is one, else a new one."""

    def __init__(
        self,
        url: str,
        timeout_s: float,
        headers: Mapping[str, str],
        *,
        idle: deque[http.client.HTTPConnection] | None = None,
        proxies: bool = False,
    ) -> None:
        """``timeout_s`` is for every wait. ``idle``: connections to the same server that are open, to use and to
        leave this one with. ``proxies``: use those of the environment (``https_proxy``, ``no_proxy``)."""
        self.closed = self.late = False
        self._parts, self._timeout_s, self._idle, self._proxies = urlsplit(url), timeout_s, idle, proxies
        self._headers = {"Content-Type": "application/json", **_credentials(self._parts, "Authorization"), **headers}
        self._target = self._parts.path + (f"?{self._parts.query}" if self._parts.query else "")
        self._connection: http.client.HTTPConnection | None = None
        self._answer: http.client.HTTPResponse | None = None
        self._socket: socket.socket | None = None
        self._changing = threading.Lock()

    def send(self, body: Mapping[str, Any] | None, *, patient: bool = False) -> http.client.HTTPResponse:
        """Return the answer to a POST of JSON (a GET for None); ``patient`` drops its content's deadline.

        Raises:
            StatusError: any status other than success.
            OSError, http.client.HTTPException: no answer.
        """
        data = json.dumps(body).encode() if body is not None else None
        answer = self._response(data, kept=True) or self._response(data, kept=False)
        assert answer is not None
        assert self._socket is not None
        if answer.status >= 300:
            text = ""
            with contextlib.suppress(OSError, http.client.HTTPException):
                text = answer.read(_REFUSAL_BYTES).decode(errors="replace")
            raise StatusError(answer.status, text)
        if patient:
            self._socket.settimeout(None)
        self._answer = answer
        return answer

    def _response(self, data: bytes | None, *, kept: bool) -> http.client.HTTPResponse | None:
        """Return the answer over a kept connection, or over a new one.

        None if there is no kept connection, or the server has closed it."""
        if kept and not self._idle:
            return None
        try:
            connection = self._idle.pop() if kept and self._idle is not None else self._opened()
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
            connection.request("GET" if data is None else "POST", self._target or "/", data, self._headers)
            return connection.getresponse()
        except (ConnectionError, http.client.RemoteDisconnected):
            if not kept or self.closed:
                raise
            connection.close()  # the server ended it while it was idle
            return None

    def _opened(self) -> http.client.HTTPConnection:
        secure, host = self._parts.scheme == "https", self._parts.hostname or ""
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        port = self._parts.port or kind.default_port  # without one the end of an address of IPv6 is read as it
        netloc = self._parts.netloc.rpartition("@")[2]
        address = urllib.request.getproxies().get(self._parts.scheme) if self._proxies else None
        if address is None or urllib.request.proxy_bypass(netloc):
            connection = kind(host, port, timeout=self._timeout_s)
        else:
            proxy = urlsplit(address if "://" in address else f"//{address}")
            login = _credentials(proxy, "Proxy-Authorization")
            connection = kind(proxy.hostname or "", proxy.port, timeout=self._timeout_s)
            if secure:
                connection.set_tunnel(host, port, login)
            else:
                self._headers |= login
                self._target = f"http://{netloc}{self._target}"
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
            whole = answer is not None and answer.isclosed()
            if self.closed or self._idle is None or connection is None or connection.sock is None or not whole:
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

    @contextlib.contextmanager
    def ending_after(self, seconds: float) -> Iterator[None]:
        """Hang up after ``seconds``, however slowly the server sends; :attr:`late` is true then."""

        def expire() -> None:
            self.late = True
            self.hang_up()

        timer = threading.Timer(seconds, expire)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self.hang_up()


def _credentials(parts: SplitResult, header: str) -> dict[str, str]:
    """Build the header for the user and password of an address, if it has any."""
    own = unquote(parts.netloc.rpartition("@")[0])
    return {header: f"Basic {base64.b64encode(own.encode()).decode()}"} if own else {}
