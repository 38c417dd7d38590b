"""JSON to a service and back, with a deadline."""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException
from typing import Any, Self
from urllib.parse import unquote, urlsplit, urlunsplit

from rlinf.base.json_text import parse_json
from rlinf.base.redaction import public_url
from rlinf_envs.errors import SettingError
from rlinf_envs.reward_terms.failure import TermFailure

_MAX_BYTES = 4 << 20
_SHOWN = 200


def require_url(where: str, url: str) -> str:
    """``url`` without a slash at its end. Raises SettingError for what is no http address."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise SettingError(f"{where} must be an address such as http://localhost:8000/v1, got {public_url(url)!r}")
    return url.rstrip("/")


def token_headers(where: str, variable: str | None) -> dict[str, str]:
    """Build an authorisation header with the token in the environment variable of that name."""
    if variable is None:
        return {}
    if not os.environ.get(variable):
        raise SettingError(f"{where}: the environment variable {variable} is not set")
    return {"Authorization": f"Bearer {os.environ[variable]}"}


class _Timed:
    """One request that ends by its deadline, however slowly the service sends: its connections are shut down then."""

    def __init__(self, timeout_s: float) -> None:
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(timeout_s, self._shut)
        self._timer.daemon = True
        self.late = False

    def opener(self) -> urllib.request.OpenerDirector:
        """Follows no redirects, which would hand the headers to another service."""
        add = self._add

        class Plain(http.client.HTTPConnection):
            def connect(self) -> None:
                super().connect()
                add(self.sock)

        class Secure(http.client.HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                add(self.sock)

        class OfPlain(urllib.request.HTTPHandler):
            def http_open(self, request: urllib.request.Request) -> Any:
                return self.do_open(Plain, request)

        class OfSecure(urllib.request.HTTPSHandler):
            def https_open(self, request: urllib.request.Request) -> Any:
                return self.do_open(Secure, request)

        return urllib.request.build_opener(OfPlain, OfSecure, _Stay)

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _add(self, connected: socket.socket) -> None:
        self._sockets.append(connected)
        if self.late:
            self._shut()

    def _shut(self) -> None:
        self.late = True
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def post(url: str, content: Mapping[str, Any], *, headers: Mapping[str, str], timeout_s: float) -> Any:
    """Return the answer of the service. Raise TermFailure if it does not answer in time and as JSON."""
    parts = urlsplit(url)
    own, _, host = parts.netloc.rpartition("@")
    if own:  # urllib takes them for a part of the host's name
        headers = {"Authorization": f"Basic {base64.b64encode(unquote(own).encode()).decode()}", **headers}
    request = urllib.request.Request(
        urlunsplit(parts._replace(netloc=host)),
        json.dumps(content).encode(),
        {"Content-Type": "application/json", **headers},
        method="POST",
    )
    place = public_url(url)
    with _Timed(timeout_s) as timed:
        try:
            with timed.opener().open(request, timeout=timeout_s) as reply:
                body = reply.read(_MAX_BYTES)
        except urllib.error.HTTPError as error:
            said = ""
            with suppress(OSError, HTTPException):
                said = error.read(_SHOWN).decode("utf-8", "replace")
            raise TermFailure(f"{place} answered {error.code}: {said}") from error
        except (OSError, HTTPException) as error:
            why = f"{type(error).__name__}: {error}"
            raise TermFailure(f"{place}: {_late(timeout_s) if timed.late else why}") from error
        if timed.late:
            raise TermFailure(f"{place}: {_late(timeout_s)}")
    try:
        return parse_json(body)
    except ValueError as error:
        raise TermFailure(f"{place} answered no JSON: {body[:_SHOWN]!r}") from error


def _late(timeout_s: float) -> str:
    return f"no complete answer within {timeout_s:g} s"
