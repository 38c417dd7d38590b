"""JSON to a service and back, with a deadline."""

from __future__ import annotations

import os
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from rlinf.base.http_client import Exchange, StatusError
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


def post(url: str, content: Mapping[str, Any], *, headers: Mapping[str, str], timeout_s: float) -> Any:
    """Return the answer of the service. Raise TermFailure if it does not answer in time and as JSON."""
    location = public_url(url)
    exchange = Exchange(url, timeout_s, headers, proxies=True)
    with exchange.ending_after(timeout_s):
        try:
            body = exchange.send(content).read(_MAX_BYTES)
        except StatusError as error:
            raise TermFailure(f"{location} answered {error.status}: {error.text[:_SHOWN]}") from error
        except (OSError, HTTPException) as error:
            why = f"{type(error).__name__}: {error}"
            raise TermFailure(f"{location}: {_late(timeout_s) if exchange.late else why}") from error
        if exchange.late:
            raise TermFailure(f"{location}: {_late(timeout_s)}")
    try:
        return parse_json(body)
    except ValueError as error:
        raise TermFailure(f"{location} answered no JSON: {body[:_SHOWN]!r}") from error


def _late(timeout_s: float) -> str:
    return f"no complete answer within {timeout_s:g} s"
