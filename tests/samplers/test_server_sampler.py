"""The sampler behind HTTP against a stand-in: its requests, how it hangs up, and its error messages."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, cast

import pytest
import torch
from tiny_models import EOS

from rlinf.data.messages import SampleRequest, SamplingParams, WeightUpdate
from rlinf.interfaces import Sampler
from rlinf.models.weight_digest import DigestRequest
from rlinf.samplers.server import ServerSampler
from rlinf.samplers.server_answers import ServerEngine
from rlinf.samplers.server_http import ServerError
from rlinf.schema.rollout import ServerConfig

PARAMS = SamplingParams(max_new_tokens=6)
ENDLESS, MUTE, CUT, BROKEN, ELSEWHERE = 40, 41, 42, 43, 44
"""First tokens of prompts that the stand-in answers in a way of its own."""


def chunk(index: int, tokens: list[int], reason: str | None = None) -> dict[str, Any]:
    logprobs = {"token_logprobs": [-0.5] * len(tokens)}
    return {"choices": [{"index": index, "token_ids": tokens, "finish_reason": reason, "logprobs": logprobs}]}


class StandIn(BaseHTTPRequestHandler):
    """Answers like a server of one model; ``answers`` overrides by path."""

    answers: ClassVar[dict[str, tuple[int, Any]]] = {}
    bodies: ClassVar[list[dict[str, Any]]] = []
    hung_up: ClassVar[threading.Event]
    endless: ClassVar[threading.Event]
    """An answer without an end has begun."""
    version = "default"

    def do_GET(self) -> None:
        if self.path == "/weight_info":
            self.reply(200, {"weight_version": self.version})
        else:
            self.reply(200, {"data": [{"id": "tiny", "max_model_len": 32}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).bodies.append(body)
        if self.path in self.answers:
            self.reply(*self.answers[self.path])
        elif "new_version" in body:
            type(self).version = body["new_version"]
            self.reply(200, {})
        elif not body.get("stream"):
            self.reply(200, {"choices": [{"logprobs": {"token_logprobs": [0.0]}}]})
        else:
            self.stream(body)

    def stream(self, body: dict[str, Any]) -> None:
        """Two tokens for each response, one at a time, unless the prompt selects something else."""
        self.send_response(200)
        self.end_headers()
        first = body["prompt"][0]
        try:
            while first == ENDLESS:
                self.send_event(chunk(0, [7]))
                self.endless.set()
                time.sleep(0.01)
            if first == MUTE:
                while True:
                    self.wfile.write(b": still there\n\n")
                    time.sleep(0.05)
        except OSError:
            self.hung_up.set()
            return
        if first in (CUT, BROKEN, ELSEWHERE):
            # Or the other request might be given up before it ever arrived here.
            self.endless.wait(5.0)
        if first == BROKEN:
            self.send_event({"error": {"message": "the engine is dead"}})
        for j in range(body["n"]):
            self.send_event(chunk(j, [5 + j]))
        if first == CUT:
            return
        for j in range(body["n"]):
            self.send_event(chunk(j, [EOS], "abort" if first == ELSEWHERE else "stop"))
        self.wfile.write(b"data: [DONE]\n\n")

    def send_event(self, event: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

    def reply(self, status: int, body: Any) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Keeps quiet."""


@pytest.fixture
def stand_in() -> Iterator[tuple[type[StandIn], str]]:
    handler = type(
        "Handler", (StandIn,), {"answers": {}, "bodies": [], "hung_up": threading.Event(), "endless": threading.Event()}
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield handler, f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()


def connect(url: str, timeout_s: float = 10.0, *, abortable: bool = True) -> ServerSampler:
    config = ServerConfig(url, timeout_s=timeout_s)
    return ServerSampler(config, eos_token_ids=[EOS], seed=7, max_model_len=128, abortable=abortable)


def test_requests_and_answers(stand_in: tuple[type[StandIn], str]) -> None:
    handler, url = stand_in
    sampler = connect(url)
    assert isinstance(sampler, Sampler)
    long = SampleRequest(3, tuple([4] * 32), 2, PARAMS, (3,))
    completions = sampler.sample([SampleRequest(8, (4, 4), 2, PARAMS, (1,)), long])
    assert [(c.request_id, c.sample_index, c.finish_reason) for c in completions] == [
        (8, 0, "stop"),
        (8, 1, "stop"),
        (3, 0, "too_long"),
        (3, 1, "too_long"),
    ]
    assert completions[1].token_ids == (6, EOS)
    assert completions[1].logprobs == (-0.5, -0.5)
    body = handler.bodies[-1]
    assert body["prompt"] == [4, 4]
    assert body["stop_token_ids"] == [EOS]


def test_a_group_split_over_samplers_keeps_its_streams(stand_in: tuple[type[StandIn], str]) -> None:
    handler, url = stand_in
    sampler = connect(url)
    sampler.sample([SampleRequest(0, (4,), 4, PARAMS, (1,))])
    sampler.sample([SampleRequest(0, (4,), 2, PARAMS, (1,), first_sample=2)])
    whole, half = handler.bodies[-2:]
    assert half["seed"] == whole["seed"] + 2


def test_an_aborted_request_is_hung_up_on_and_keeps_its_tokens(stand_in: tuple[type[StandIn], str]) -> None:
    handler, url = stand_in
    sampler = connect(url)
    endless = [SampleRequest(name, (ENDLESS,), 1, PARAMS, (name,), first_sample=name) for name in (2, 3)]
    stream = sampler.stream([*endless, SampleRequest(1, (4,), 1, PARAMS, (1,))])
    assert next(stream).request_id == 1
    time.sleep(0.2)
    aborted = sampler.abort([2, 3])
    assert [(done.request_id, done.sample_index, done.finish_reason) for done in aborted] == [
        (2, 2, "abort"),
        (3, 3, "abort"),
    ]
    for done in aborted:
        assert set(done.token_ids) == {7}
        assert len(done.logprobs) == len(done.policy_version) == len(done.token_ids)
    assert list(stream) == []
    assert handler.hung_up.wait(10.0)


def test_a_stream_that_is_left_is_hung_up_on(stand_in: tuple[type[StandIn], str]) -> None:
    handler, url = stand_in
    sampler = connect(url)
    stream = sampler.stream([SampleRequest(2, (ENDLESS,), 1, PARAMS, (2,)), SampleRequest(1, (4,), 1, PARAMS, (1,))])
    next(stream)
    with pytest.raises(RuntimeError, match="streaming already"):
        sampler.sample([SampleRequest(1, (4,), 1, PARAMS, (1,))])
    stream.close()
    assert handler.hung_up.wait(10.0)
    assert sampler.sample([SampleRequest(1, (4,), 1, PARAMS, (1,))])


def test_requests_that_have_not_begun_are_aborted_without_a_token(
    stand_in: tuple[type[StandIn], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlinf.samplers.server_answers._CONCURRENT", 2)
    _, url = stand_in
    sampler = connect(url)
    short = SampleRequest(0, (4,), 1, PARAMS, (0,))
    stream = sampler.stream([short, *(SampleRequest(name, (ENDLESS,), 1, PARAMS, (name,)) for name in (1, 2, 3))])
    next(stream)
    aborted = {done.request_id: done for done in sampler.abort([1, 2, 3])}
    assert sorted(aborted) == [1, 2, 3]
    assert aborted[3].token_ids == ()
    assert list(stream) == []


def test_without_aborts_responses_come_in_one_piece(stand_in: tuple[type[StandIn], str]) -> None:
    handler, url = stand_in
    sampler = connect(url, abortable=False)
    sampler.sample([SampleRequest(0, (4,), 1, PARAMS, (1,))])
    assert handler.bodies[-1]["stream_interval"] == PARAMS.max_new_tokens
    with pytest.raises(RuntimeError, match="not made abortable"):
        sampler.abort([0])


@pytest.mark.parametrize("status", [500, 400])
def test_refusals_carry_the_answer(stand_in: tuple[type[StandIn], str], status: int) -> None:
    handler, url = stand_in
    sampler = connect(url)
    handler.answers["/v1/completions"] = (status, {"error": "for a reason"})
    with pytest.raises(ServerError, match=f"answered {status}.*for a reason"):
        sampler.sample([SampleRequest(0, (4,), 1, PARAMS, (1,))])


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (CUT, "hung up in the middle of an answer"),
        (BROKEN, "failed on the way.*the engine is dead"),
        (ELSEWHERE, "another reason than ours: abort"),
    ],
)
def test_answers_that_do_not_end_as_they_should(stand_in: tuple[type[StandIn], str], prompt: int, words: str) -> None:
    handler, url = stand_in
    sampler = connect(url)
    with pytest.raises(ServerError, match=words):
        sampler.sample([SampleRequest(0, (ENDLESS,), 1, PARAMS, (0,)), SampleRequest(1, (prompt,), 2, PARAMS, (1,))])
    assert handler.hung_up.wait(10.0), "the other request must not go on without a client"
    assert sampler.sample([SampleRequest(2, (4,), 1, PARAMS, (2,))])


def test_a_server_that_hangs_is_named_in_time(stand_in: tuple[type[StandIn], str]) -> None:
    """Comments that keep the connection alive do not hide an engine that makes no tokens."""
    handler, url = stand_in
    sampler = connect(url, timeout_s=0.3)
    started = time.monotonic()
    with pytest.raises(ServerError, match=r"sent nothing for 0\.3 s .* with 2 responses open"):
        sampler.sample([SampleRequest(0, (MUTE,), 2, PARAMS, (1,))])
    assert time.monotonic() - started < 5.0
    assert handler.hung_up.wait(10.0)


def test_what_came_while_nothing_was_read_is_no_silence(stand_in: tuple[type[StandIn], str]) -> None:
    session = connect(stand_in[1], timeout_s=30.0).session()
    session.submit([SampleRequest(1, (4,), 1, PARAMS, (1,))])
    engine = cast(ServerEngine, session.engine)
    until = time.monotonic() + 20
    while engine._events.empty() and time.monotonic() < until:
        time.sleep(0.05)
    engine._last_event -= 60.0
    assert [done.request_id for done in session.poll(20.0)] == [1]
    session.close()


def test_unprocessed_logprobs_are_refused(stand_in: tuple[type[StandIn], str]) -> None:
    handler, url = stand_in
    handler.answers["/v1/completions"] = (200, {"choices": [{"logprobs": {"token_logprobs": [-2.5]}}]})
    with pytest.raises(ServerError, match="--logprobs-mode processed_logprobs"):
        connect(url)


@pytest.mark.parametrize("choices", [[], [{"logprobs": None}], [{"logprobs": {"content": []}}]])
def test_a_server_without_logprobs_is_named(stand_in: tuple[type[StandIn], str], choices: list[Any]) -> None:
    handler, url = stand_in
    handler.answers["/v1/completions"] = (200, {"choices": choices})
    with pytest.raises(ServerError, match=f"{url} reports no log-probabilities of tokens"):
        connect(url.replace("//", "//ada:word@"))


def test_a_server_without_weight_endpoints_is_named(stand_in: tuple[type[StandIn], str]) -> None:
    handler, url = stand_in
    sampler = connect(url)
    handler.answers["/collective_rpc"] = (404, {"detail": "Not Found"})
    with pytest.raises(ServerError, match=r"VLLM_SERVER_DEV_MODE=1.*answered 404"):
        sampler.load(WeightUpdate(1, {"a": torch.zeros(2)}))


@pytest.mark.parametrize("answer", [(404, {"detail": "Not Found"}), (200, {"results": ["None"]}), (200, {})])
def test_a_server_that_cannot_read_its_weights_back_is_named(
    stand_in: tuple[type[StandIn], str], answer: tuple[int, dict[str, Any]]
) -> None:
    handler, url = stand_in
    sampler = connect(url)
    handler.answers["/collective_rpc"] = answer
    reason = sampler.held_digests({"a": DigestRequest(1, True, (2,))})
    assert isinstance(reason, str)
    assert f"{url} does not read its weights back" in reason
    assert "--worker-extension-cls rlinf.samplers.vllm_weights.WeightReceiver" in reason


def test_a_server_that_lost_its_weights_is_noticed(stand_in: tuple[type[StandIn], str]) -> None:
    handler, url = stand_in
    sampler = connect(url)
    handler.answers |= {"/collective_rpc": (200, {}), "/reset_prefix_cache?reset_running_requests=true": (200, {})}
    sampler.load(WeightUpdate(3, {"a": torch.zeros(2)}))
    (done,) = sampler.sample([SampleRequest(0, (4,), 1, PARAMS, (1,))])
    assert set(done.policy_version) == {3}
    handler.version = "default"
    with pytest.raises(ServerError, match="has weights 'default' instead of 3: was it restarted"):
        sampler.sample([SampleRequest(0, (4,), 1, PARAMS, (1,))])


def test_wrong_addresses() -> None:
    with pytest.raises(ValueError, match=r"needs rollout\.server\.base_url"):
        ServerSampler(ServerConfig(), eos_token_ids=[EOS], seed=0, max_model_len=8)
    with pytest.raises(ValueError, match="must begin with http"):
        connect("localhost:8000")
    with pytest.raises(ServerError, match="can't be reached"):
        connect("http://127.0.0.1:9/v1")
