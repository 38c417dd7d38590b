"""JSON to a service and back, with a deadline."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from rlinf.json_text import parse_json
from rlinf_envs.errors import SettingError
from rlinf_envs.reward_terms.failure import TermFailure

_MAX_BYTES = 4 << 20
_SHOWN = 200


def require_url(where: str, url: str) -> str:
    """``url`` without a slash at its end. Raises SettingError for what is no http address."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise SettingError(f"{where} must be an address such as http://localhost:8000/v1, got {url!r}")
    return url.rstrip("/")


def token_headers(where: str, variable: str | None) -> dict[str, str]:
    """An authorisation header with the token in the environment variable of that name."""
    if variable is None:
        return {}
    if not os.environ.get(variable):
        raise SettingError(f"{where}: the environment variable {variable} is not set")
    return {"Authorization": f"Bearer {os.environ[variable]}"}


def post(url: str, content: Mapping[str, Any], *, headers: Mapping[str, str], timeout_s: float) -> Any:
    """The answer of the service. Raises TermFailure where it does not answer in time and as JSON."""
    request = urllib.request.Request(
        url, json.dumps(content).encode(), {"Content-Type": "application/json", **headers}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as reply:
            body = reply.read(_MAX_BYTES)
    except urllib.error.HTTPError as error:
        said = error.read(_SHOWN).decode("utf-8", "replace")
        raise TermFailure(f"{url} answered {error.code}: {said}") from error
    except (OSError, HTTPException) as error:
        raise TermFailure(f"{url}: {type(error).__name__}: {error}") from error
    try:
        return parse_json(body)
    except ValueError as error:
        raise TermFailure(f"{url} answered no JSON: {body[:_SHOWN]!r}") from error
