"""Digests of weights between a server and its client: JSON, in which numbers are base64 of their float64 bytes."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlinf.models.weight_digest import DigestRequest, Digests, TensorDigest
from rlinf.samplers.server_http import Server, ServerError


def held(server: Server, requests: Mapping[str, DigestRequest]) -> Digests:
    """Return the digests of what the first worker of ``server`` computes with.

    Raises:
        ServerError: it has no such call, or answers otherwise.
    """
    encoded = json.dumps({name: [one.salt, one.shape] for name, one in requests.items()})
    answer = server.call(f"{server.root}/collective_rpc", {"method": "held_encoded", "args": [encoded]})
    results = answer.get("results") if isinstance(answer, dict) else None
    if not (isinstance(results, list) and results and isinstance(results[0], dict)):
        raise ServerError(f"{server.name} answered held_encoded with {str(answer)[:80]!r}")
    return {name: _decoded(requests[name], one) for name, one in results[0].items() if name in requests}


def encoded_digests(digests: Mapping[str, TensorDigest | None]) -> dict[str, Any]:
    """By name None, or [dtype, ``every``, the numbers]."""
    return {
        name: None if one is None else [one.dtype, one.every, base64.b64encode(one.numbers.tobytes()).decode()]
        for name, one in digests.items()
    }


def _decoded(request: DigestRequest, plain: Any) -> TensorDigest | None:
    if plain is None:
        return None
    dtype, every, numbers = plain
    return TensorDigest(request.shape, dtype, request.salt, np.frombuffer(base64.b64decode(numbers)), every=every)
