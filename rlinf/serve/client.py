"""A policy behind a server, as a program of a robot's side uses it."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from rlinf.data.spaces import observation_entries
from rlinf.serve.server import DEADLINE_S, Connection


class RemotePolicy:
    """Requests chunks from the server at ``url`` (`rlinf serve`); used as a context, which ends the connection.

    Every wait ends after ``deadline_s``; a UserError then names the server (`server.Connection`).
    """

    def __init__(self, url: str, *, token: str | None = None, deadline_s: float = DEADLINE_S) -> None:
        self._connection, self._fresh = Connection(url, token=token, deadline_s=deadline_s), True
        self.metadata: dict[str, Any] = self._connection.receive()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def reset(self) -> None:
        """Begin an episode: the next request has the server forget what a recurrent policy remembers."""
        self._fresh = True

    def act(self, observation: Any, **_choices: object) -> np.ndarray:
        """Return the chunk [K, ...] for an observation of the environment. The server decides how it is drawn."""
        request: dict[str, Any] = dict(observation_entries(observation))
        if self._fresh:
            request["reset"], self._fresh = True, False
        return np.asarray(self._connection.request(request)["actions"])
