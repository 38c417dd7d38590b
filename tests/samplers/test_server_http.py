"""HTTP to a model server: connections are used again, and the API key of an environment variable is sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from rlinf.base.errors import UserError
from rlinf.config import ConfigErrors, load_mapping
from rlinf.config.record import stored
from rlinf.samplers.echo_server import EchoServer
from rlinf.samplers.server_http import Server, ServerError

KEY = "sk-secret-of-a-test"


class Kept(BaseHTTPRequestHandler):
    """A server that keeps connections open and wants a key."""

    protocol_version = "HTTP/1.1"
    connections: ClassVar[set[Any]]
    closes_after_answer = False

    def do_POST(self) -> None:
        type(self).connections.add(self.client_address)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers.get("Authorization") != f"Bearer {KEY}":
            self.reply(401, {"error": "no key"})
        elif body.get("stream"):
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for line in (b'data: {"n": 1}\n\n', b"data: [DONE]\n\n"):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.reply(200, {"n": body["n"]})
        # Without a word, as a server whose idle time is over.
        self.close_connection = self.closes_after_answer

    def reply(self, status: int, content: Any) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[type[Kept], str]]:
    monkeypatch.setenv("TEST_MODEL_KEY", KEY)
    handler = type("Handler", (Kept,), {"connections": set()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield handler, f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()


def client(url: str) -> Server:
    return Server(url, timeout_s=5.0, api_key_env="TEST_MODEL_KEY")


def test_calls_and_streams_share_one_connection(kept: tuple[type[Kept], str]) -> None:
    handler, url = kept
    server = client(url)
    for number in range(3):
        assert server.call(url, {"n": number}) == {"n": number}
        assert list(server.events(url, {"stream": True})) == [{"n": 1}]
    assert len(handler.connections) == 1


def test_a_connection_that_the_server_closed_meanwhile_is_replaced(kept: tuple[type[Kept], str]) -> None:
    handler, url = kept
    handler.closes_after_answer = True
    server = client(url)
    assert [server.call(url, {"n": number})["n"] for number in range(3)] == [0, 1, 2]
    assert len(handler.connections) == 3


def test_a_stream_that_was_closed_early_does_not_keep_its_connection(kept: tuple[type[Kept], str]) -> None:
    handler, url = kept
    server = client(url)
    stream = server.events(url, {"stream": True})
    assert next(iter(stream)) == {"n": 1}
    stream.close()
    assert server.call(url, {"n": 2}) == {"n": 2}
    assert len(handler.connections) == 2


def test_without_the_key_the_server_refuses_and_the_message_has_no_key(kept: tuple[type[Kept], str]) -> None:
    _, url = kept
    with pytest.raises(ServerError, match="answered 401") as refused:
        Server(url, timeout_s=5.0).call(url, {"n": 1})
    assert KEY not in str(refused.value)


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_MODEL_KEY", raising=False)
    with pytest.raises(UserError, match="TEST_MODEL_KEY is not set"):
        client("http://127.0.0.1:1/v1")


def sections() -> dict[str, Any]:
    server = {"base_url": "http://127.0.0.1:1/v1", "api_key_env": "TEST_MODEL_KEY"}
    return {
        "env": {"id": "rlinf_envs:rlinf/ReasoningGym-v0", "kwargs": {"task": "chain_sum"}},
        "policy": {"path": "owner/model"},
        "rollout": {"sampler": "server", "server": server},
    }


def test_the_configuration_holds_the_name_of_the_variable_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_MODEL_KEY", KEY)
    text = json.dumps(stored(load_mapping(sections(), source="test")))
    assert "TEST_MODEL_KEY" in text
    assert KEY not in text
    monkeypatch.delenv("TEST_MODEL_KEY")
    with pytest.raises(ConfigErrors, match=r"rollout\.server\.api_key_env: the environment variable TEST_MODEL_KEY"):
        load_mapping(sections(), source="test")


def test_an_answer_that_is_no_json_is_named_with_its_address(
    kept: tuple[type[Kept], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address of another program, which answers everything with a page."""
    handler, url = kept

    def page(self: Kept, status: int, content: Any) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "15")
        self.end_headers()
        self.wfile.write(b"<!doctype html>")

    monkeypatch.setattr(handler, "reply", page)
    with pytest.raises(ServerError, match=rf"{url} answered without JSON: '<!doctype html>'"):
        client(url).call(url, {"n": 1})


@pytest.mark.parametrize("logprobs", [None, {"content": []}, {"token_logprobs": [None]}])
def test_a_teacher_that_does_not_echo_is_named_without_its_password(
    logprobs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"models": {"data": [{"id": "taught"}]}, "completions": {"choices": [{"logprobs": logprobs}]}}
    monkeypatch.setattr(Server, "call", lambda self, url, body=None: answers[url.rpartition("/")[2]])
    teacher = EchoServer("http://ada:word@host/v1", model=None, timeout_s=1.0, concurrency=1)
    with pytest.raises(ServerError, match=r"^http://host/v1 does not echo"):
        teacher._echoed((1,), (2,))
