"""One request over the proxy of the environment, or past it; redirects are reported, not followed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rlinf.base.http_client import Exchange, StatusError

ARRIVED: list[tuple[str, str | None]] = []


class Proxy(BaseHTTPRequestHandler):
    """Answers every request itself, and records its target and the login of the proxy."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        ARRIVED.append((self.path, self.headers.get("Proxy-Authorization")))
        self.send_response(302 if self.path.endswith("/moved") else 200)
        self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    ARRIVED.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def body_from(url: str, *, proxies: bool) -> bytes:
    exchange = Exchange(url, 5.0, {}, proxies=proxies)
    with exchange.ending_after(5.0):
        return exchange.send({}).read()


def test_a_proxy_of_the_environment_gets_the_whole_address_and_its_login(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://ada:pass@127.0.0.1:{port}")
    monkeypatch.delenv("no_proxy", raising=False)
    assert body_from("http://judge.example/grade?key=k", proxies=True) == b"{}"
    assert ARRIVED == [("http://judge.example/grade?key=k", "Basic YWRhOnBhc3M=")]


@pytest.mark.parametrize("proxies", [False, True])
def test_a_proxy_is_passed_by_unless_requested(port: int, monkeypatch: pytest.MonkeyPatch, proxies: bool) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", f"127.0.0.1:{port}" if proxies else "")
    assert body_from(f"http://127.0.0.1:{port}/grade", proxies=proxies) == b"{}"
    assert ARRIVED == [("/grade", None)]


def test_a_redirect_is_no_answer(port: int) -> None:
    with pytest.raises(StatusError, match="302"):
        body_from(f"http://127.0.0.1:{port}/moved", proxies=False)


@pytest.mark.parametrize(("url", "port"), [("http://[::1]/v1", 80), ("http://[::1]:8000/v1", 8000)])
def test_an_address_of_ip_6_has_its_own_port(url: str, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HTTPConnection, "connect", lambda self: None)
    connection = Exchange(url, 1.0, {})._opened()
    assert (connection.host, connection.port) == ("::1", port)
