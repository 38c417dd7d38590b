"""Reward services that are slow, dead or elsewhere: each request ends in time, and no message shows a secret."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from rlinf_envs.reward_terms.failure import TermFailure
from rlinf_envs.reward_terms.http import http
from rlinf_envs.reward_terms.posting import post

from rlinf.report.first_steps import FIRST_STEPS, FirstSteps

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
CONFIG = {
    "run": {"max_steps": 9},
    "rollout": {"batch_size": 2},
    "algorithm": {"group_size": 2},
    "env": {"kwargs": {"reward": {"http": {"url": "http://user:pw@judge.local/grade?key=abc"}}}},
}


@contextmanager
def service(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A service that answers each connection so; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    with server.accept()[0] as connection, suppress(OSError):
                        connection.recv(65536)
                        answer(connection)
                        # What is still unread at a close resets the connection, and the answer is lost.
                        connection.shutdown(socket.SHUT_WR)
                        while connection.recv(65536):
                            pass

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://user:s3cret@127.0.0.1:{server.getsockname()[1]}/grade?key=t0ken"
        server.shutdown(socket.SHUT_RDWR)


def drip(start: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.sendall(start)
        for _ in range(200):
            connection.sendall(b" ")
            time.sleep(0.05)

    return answer


def failure(address: str, timeout_s: float = 0.4) -> str:
    with pytest.raises(TermFailure) as caught:
        http(url=address, timeout_s=timeout_s)(prompt="p", response="r", answer="a", row={})
    assert "s3cret" not in str(caught.value)
    assert "t0ken" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nServer:", HEAD + b"\r\n{", b"HTTP/1.1 500 Error\r\n\r\n"])
def test_a_service_that_drips_is_given_up_in_time(start: bytes) -> None:
    with service(drip(start)) as address:
        began = time.monotonic()
        words = failure(address)
    assert time.monotonic() - began < 5
    assert words.startswith("http://127.0.0.1:")
    assert "no complete answer within 0.4 s" in words or "answered 500" in words


def test_a_redirect_takes_no_headers_elsewhere() -> None:
    received: list[bytes] = []
    with service(lambda connection: received.append(connection.recv(65536))) as elsewhere:
        there = f"HTTP/1.1 302 Found\r\nLocation: {elsewhere}\r\nContent-Length: 0\r\n\r\n".encode()
        with service(lambda connection: connection.sendall(there)) as address, pytest.raises(TermFailure, match="302"):
            post(address.replace("user:s3cret@", ""), {}, headers={"Authorization": "Bearer t0ken"}, timeout_s=5)
    assert received == []


def test_no_message_shows_what_stands_in_an_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"http://user:s3cret@127.0.0.1:{free.getsockname()[1]}/v1?key=t0ken"
    failure(address)
    with service(lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n{}")) as address:
        assert "gave no finite number" in failure(address, timeout_s=5)
    with pytest.raises(Exception, match="must be an address") as caught:
        http(url="ftp://user:s3cret@host/?key=t0ken")
    assert "s3cret" not in str(caught.value)
    assert "t0ken" not in str(caught.value)


def test_a_service_that_is_dead_is_reported_once_each_time() -> None:
    first = FirstSteps(CONFIG)
    dead, alive = {"reward_failures/http": 4.0}, {"reward_failures/http": 1.0, "algorithm/reward_mean": 1.0}
    by_step = [first.add(step, dead if step in (1, 2, 3, 4, 6, 7, 8, 9) else alive) for step in range(1, 10)]
    assert [step for step, warnings in enumerate(by_step, 1) if warnings] == [FIRST_STEPS, 8]
    assert str(by_step[2][0]) == (
        "The service of env.kwargs.reward.http (http://judge.local/grade) failed for every response in the first 3 "
        "training iterations. They are masked or count 0: nothing was learned from them. Start the service, or correct "
        "its address."
    )
    assert "in the last 3 training iterations" in str(by_step[7][0])
