"""The websocket server, and a client that measures it. The only import of websockets."""

from __future__ import annotations

import hmac
import http
import math
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any, Self

import numpy as np

from rlinf.base.errors import UserError
from rlinf.base.packages import install_command
from rlinf.serve.session import RequestError, Session

# Messages of openpi's protocol: msgpack, in which an array is a mapping of its bytes, dtype and shape. No pickle.
# Source: `openpi_client.msgpack_numpy` of openpi-client 0.1. Only numbers and booleans are taken from the other side.
_KINDS = "biuf"
_ARRAY, _SCALAR, _DATA, _DTYPE, _SHAPE = b"__ndarray__", b"__npgeneric__", b"data", b"dtype", b"shape"


class WireError(ValueError):
    """Bytes that are no message of this protocol."""


def pack(message: Any) -> bytes:
    """Return the bytes of a message of mappings, lists, texts, numbers and arrays."""
    import msgpack

    packed: bytes = msgpack.packb(message, default=_packed)
    return packed


def unpack(data: bytes | str) -> Any:
    """Return the values that :func:`pack` was given; arrays are writable. Anything else is a WireError."""
    import msgpack

    if isinstance(data, str):
        raise WireError("a message is binary (msgpack), and this one is text")
    try:
        return msgpack.unpackb(data, object_hook=_unpacked, strict_map_key=False)
    except WireError:
        raise
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise WireError(f"no msgpack message: {error}") from error


def _packed(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind not in _KINDS:
        raise TypeError(f"arrays of {value.dtype} are not sent, only numbers and booleans")
    if isinstance(value, np.ndarray):
        return {_ARRAY: True, _DATA: value.tobytes(), _DTYPE: value.dtype.str, _SHAPE: value.shape}
    if isinstance(value, np.generic):
        return {_SCALAR: True, _DATA: value.item(), _DTYPE: value.dtype.str}
    raise TypeError(f"a {type(value).__name__} is not sent")


def _unpacked(value: dict[Any, Any]) -> Any:
    if _ARRAY in value:
        dtype, shape = _number_type(value[_DTYPE]), tuple(value[_SHAPE])
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(value[_DATA]):
            raise WireError(f"an array of shape {shape} and {dtype} does not have {len(value[_DATA])} bytes")
        return np.frombuffer(bytearray(value[_DATA]), dtype).reshape(shape)
    if _SCALAR in value:
        return _number_type(value[_DTYPE]).type(value[_DATA])
    return value


def _number_type(name: Any) -> np.dtype:
    dtype = np.dtype(name.decode() if isinstance(name, bytes) else name)
    if dtype.kind not in _KINDS:
        raise WireError(f"arrays of {dtype} are not taken, only numbers and booleans")
    return dtype


_LIMIT = 64 * 2**20
"""Bytes of a message: dozens of large pictures."""
_HEALTH = "/healthz"
_KEPT = 100_000
"""Latencies that are remembered."""
DEADLINE_S = 60.0
"""How long a client waits for an answer."""


class PolicyServer:
    """Serves ``make_session`` on a port until :meth:`close`; used as a context, which starts and closes it.

    Each connection has a session and a thread of its own. Its first message is the session's metadata; then every
    observation is answered by actions. A request that cannot be answered is answered by a text that states why,
    and ends the connection, as in openpi. ``GET /healthz`` answers 200.
    """

    def __init__(
        self,
        make_session: Callable[[], Session],
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        token: str | None = None,
    ) -> None:
        """Port 0 takes a free one. With ``token`` clients send it (`WebsocketClientPolicy(api_key=...)`)."""
        try:
            from websockets.sync.server import serve
        except ImportError as error:
            raise UserError(f"a policy server needs websockets and msgpack: {install_command('serve')}") from error
        self._make_session, self._token = make_session, token
        self.latencies_ms: list[float] = []
        """From the arrival of each observation to the departure of its actions."""
        try:
            self._server = serve(
                self._converse, host, port, process_request=self._admit, compression=None, max_size=_LIMIT
            )
        except (OSError, OverflowError) as error:  # the latter for a port that none can be
            raise UserError(f"no server on {host}:{port}: {error}") from error
        self.port: int = self._server.socket.getsockname()[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections and wait for the server."""
        self._server.shutdown()
        self._thread.join(timeout=10)

    def _admit(self, _connection: Any, request: Any) -> Any:
        """None lets a connection in; anything else is its answer."""
        if request.path == _HEALTH:
            return _connection.respond(http.HTTPStatus.OK, "OK\n")
        header = request.headers.get("Authorization", "")
        if self._token is not None and not hmac.compare_digest(header.encode(), f"Api-Key {self._token}".encode()):
            return _connection.respond(http.HTTPStatus.UNAUTHORIZED, "this server wants its token (Api-Key TOKEN)\n")
        return None

    def _converse(self, connection: Any) -> None:
        from websockets.exceptions import ConnectionClosed
        from websockets.frames import CloseCode

        session = self._make_session()
        previous_ms: float | None = None
        try:
            connection.send(pack(session.metadata))
            while True:
                received = connection.recv()
                began = time.perf_counter()
                try:
                    answer = session.answer(unpack(received))
                except (WireError, RequestError) as error:
                    connection.send(str(error))
                    connection.close(CloseCode.INVALID_DATA, "the request could not be answered")
                    return
                if previous_ms is not None:
                    answer["server_timing"]["prev_total_ms"] = previous_ms
                connection.send(pack(answer))
                previous_ms = (time.perf_counter() - began) * 1e3
                if len(self.latencies_ms) < _KEPT:
                    self.latencies_ms.append(previous_ms)
        except ConnectionClosed:
            return


class Connection:
    """A client's connection to the server at ``url``; every wait ends after ``deadline_s``.

    A UserError names the server that is not there, does not answer in time, refuses, or ends the connection.
    """

    def __init__(self, url: str, *, token: str | None, deadline_s: float | None = None) -> None:
        """``deadline_s``: None for :data:`DEADLINE_S`."""
        try:
            from websockets.sync.client import connect
        except ImportError as error:
            raise UserError(f"a policy server needs websockets and msgpack: {install_command('serve')}") from error
        from websockets.exceptions import WebSocketException

        headers = {"Authorization": f"Api-Key {token}"} if token is not None else None
        self._url, self._deadline_s, self._open = url, DEADLINE_S if deadline_s is None else deadline_s, ExitStack()
        try:
            opened = connect(
                url, compression=None, max_size=_LIMIT, additional_headers=headers, open_timeout=self._deadline_s
            )
            self._connection = self._open.enter_context(opened)
        except (OSError, WebSocketException, ValueError) as error:
            raise UserError(f"no policy server at {url}: {error}") from error

    def close(self) -> None:
        self._open.close()

    def request(self, message: Any) -> Any:
        """Send a message and return its answer."""
        return self.receive(after=pack(message))

    def receive(self, *, after: bytes | None = None) -> Any:
        """Return the next message; a request that it answers is sent before."""
        from websockets.exceptions import ConnectionClosed

        try:
            if after is not None:
                self._connection.send(after)
            answer = self._connection.recv(timeout=self._deadline_s)
            if isinstance(answer, str):
                raise UserError(f"the policy server at {self._url} could not answer: {answer}")
            return unpack(answer)
        except TimeoutError as error:
            raise UserError(f"the policy server at {self._url} did not answer in {self._deadline_s:g} s") from error
        except (ConnectionClosed, WireError) as error:
            raise UserError(f"the policy server at {self._url} ended the connection: {error}") from error


def percentiles(latencies_ms: list[float]) -> str:
    """Median, 99th percentile and the longest, in words."""
    if not latencies_ms:
        return "no requests"
    middle, late = np.percentile(latencies_ms, [50, 99])
    return f"{len(latencies_ms)} requests: p50 {middle:.2f} ms, p99 {late:.2f} ms, longest {max(latencies_ms):.2f} ms"


def measure_real_time(
    url: str, observation: dict[str, Any], actions: int, *, rate: float, token: str | None = None
) -> str:
    """Carry out ``actions`` at ``rate`` a second while chunks are computed; return stalls and jumps in words."""
    from rlinf.serve.real_time import ChunkPlayer

    with closing(Connection(url, token=token)) as connection:
        chunk = int(connection.receive()["num_action_chunks"])

        def chunk_of(request: Any) -> np.ndarray:
            return np.asarray(connection.request(request)["actions"])

        with ChunkPlayer(chunk_of, begin_at=max(chunk - 1, 0)) as player:
            began = time.perf_counter()
            for number in range(actions):
                player.action(observation)
                time.sleep(max(0.0, began + (number + 1) / rate - time.perf_counter()))
            spent = time.perf_counter() - began
    # The first chunk has none before it.
    stalls = player.stalls_ms[1:]
    jump = max(player.jumps, default=0.0)
    return (
        f"{actions} actions at {rate:g} a second in {spent:.2f} s: {len(stalls)} stalls after the first chunk, longest "
        f"{max(stalls, default=0.0):.2f} ms; largest jump between chunks {jump:.3f}"
    )


def measure(url: str, observation: dict[str, Any], requests: int, *, token: str | None = None) -> list[float]:
    """Milliseconds that each of the ``requests`` took, as a client sees it."""
    taken = []
    with closing(Connection(url, token=token)) as connection:
        connection.receive()
        for _ in range(requests):
            began = time.perf_counter()
            connection.request(observation)
            taken.append((time.perf_counter() - began) * 1e3)
    return taken
