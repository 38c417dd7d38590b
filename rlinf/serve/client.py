"""A policy behind a server, as a program of a robot's side uses it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Self

import numpy as np

from rlinf.base.errors import UserError
from rlinf.base.packages import install_command
from rlinf.serve.server import MESSAGE_LIMIT, WireError, pack, unpack

_DEADLINE_S = 60.0
_ROOT = "observation"


class RemotePolicy:
    """Asks the server at ``url`` (`rlinf serve`) for chunks; used as a context, which ends the connection.

    Every wait ends after ``deadline_s``; a UserError then names the server, as it does for an answer that is none.
    """

    def __init__(self, url: str, *, token: str | None = None, deadline_s: float = _DEADLINE_S) -> None:
        try:
            from websockets.sync.client import connect
        except ImportError as error:
            raise UserError(f"a policy server needs websockets and msgpack: {install_command('serve')}") from error
        from websockets.exceptions import WebSocketException

        headers = {"Authorization": f"Api-Key {token}"} if token is not None else None
        self._url, self._deadline_s, self._fresh = url, deadline_s, True
        self._open = ExitStack()
        try:
            self._connection = self._open.enter_context(
                connect(
                    url,
                    compression=None,
                    max_size=MESSAGE_LIMIT,
                    additional_headers=headers,
                    open_timeout=deadline_s,
                )
            )
        except (OSError, WebSocketException, ValueError) as error:
            raise UserError(f"no policy server at {url}: {error}") from error
        self.metadata: dict[str, Any] = self._received()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def reset(self) -> None:
        """Begin an episode: the next request has the server forget what a recurrent policy remembers."""
        self._fresh = True

    def act(self, observation: Any, **_choices: object) -> np.ndarray:
        """Return the chunk [K, ...] for an observation of the environment. The server decides how it is drawn."""
        request: dict[str, Any] = dict(named_parts(observation))
        if self._fresh:
            request["reset"], self._fresh = True, False
        self._connection.send(pack(request))
        return np.asarray(self._received()["actions"])

    def _received(self) -> dict[str, Any]:
        from websockets.exceptions import ConnectionClosed

        try:
            answer = self._connection.recv(timeout=self._deadline_s)
            if isinstance(answer, str):
                raise UserError(f"the policy server at {self._url} could not answer: {answer}")
            found: dict[str, Any] = unpack(answer)
            return found
        except TimeoutError as error:
            raise UserError(f"the policy server at {self._url} did not answer in {self._deadline_s:g} s") from error
        except (ConnectionClosed, WireError) as error:
            raise UserError(f"the policy server at {self._url} ended the connection: {error}") from error


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
