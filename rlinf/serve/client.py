"""A policy behind a server, as a program of a robot's side uses it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np

from rlinf.serve.server import Connection

_DEADLINE_S = 60.0
_ROOT = "observation"


class RemotePolicy:
    """Asks the server at ``url`` (`rlinf serve`) for chunks; used as a context, which ends the connection.

    Every wait ends after ``deadline_s``; a UserError then names the server (`server.Connection`).
    """

    def __init__(self, url: str, *, token: str | None = None, deadline_s: float = _DEADLINE_S) -> None:
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
        request: dict[str, Any] = dict(named_parts(observation))
        if self._fresh:
            request["reset"], self._fresh = True, False
        return np.asarray(self._connection.ask(request)["actions"])


def named_parts(observation: Any, name: str = _ROOT) -> Iterator[tuple[str, Any]]:
    """Yield the parts of an observation by their names, as servers read them.

    >>> dict(named_parts({"state": 1, "arms": (2, 3)}))
    {'observation.state': 1, 'observation.arms.0': 2, 'observation.arms.1': 3}
    """
    if isinstance(observation, Mapping):
        for key, part in observation.items():
            yield from named_parts(part, f"{name}.{key}")
    elif isinstance(observation, tuple):
        for number, part in enumerate(observation):
            yield from named_parts(part, f"{name}.{number}")
    else:
        yield name, observation
