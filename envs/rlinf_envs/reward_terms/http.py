"""``http``: a service of one's own reports what a response is worth."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlinf.base.redaction import public_url
from rlinf_envs.reward_terms.failure import TermFailure
from rlinf_envs.reward_terms.posting import post, require_url, token_headers

if TYPE_CHECKING:
    from rlinf.interfaces import RewardTerm


def http(*, url: str, key: str = "reward", token_env: str | None = None, timeout_s: float = 30.0) -> RewardTerm:
    """Post ``{prompt, response, answer, row}`` to ``url`` and read the number under ``key`` of the JSON answer.

    Args:
        token_env: environment variable with a token for the authorisation header.
        timeout_s: of one request.
    """
    address, headers = require_url("reward.http.url", url), token_headers("reward.http.token_env", token_env)

    def term(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
        content = {"prompt": prompt, "response": response, "answer": answer, "row": _plain(row)}
        reply = post(address, content, headers=headers, timeout_s=timeout_s)
        value = reply.get(key) if isinstance(reply, Mapping) else None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise TermFailure(f"{public_url(address)} gave no finite number under {key!r}: {reply!r:.200}")
        return float(value)

    return term


def _plain(row: Mapping[str, Any]) -> Any:
    """Convert the row to what JSON holds; values without a JSON type are written as text."""
    return json.loads(json.dumps(dict(row), default=str))
