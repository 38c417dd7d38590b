"""The sampler behind HTTP: its errors against a stand-in, everything else against a real vLLM server."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from rlinf.config.schema.rollout import ServerConfig
from rlinf.interfaces import Sampler
from rlinf.samplers.server import ServerError, ServerSampler
from rlinf.samplers.weights import WeightLayout
from rlinf.types import SampleRequest, SamplingParams, WeightUpdate
from tests.samplers.tiny_models import EOS, VOCABULARY, forward_logprobs, make_requests, tiny_qwen2

ROOT = Path(__file__).resolve().parents[2]
PARAMS = SamplingParams(max_new_tokens=6)


class StandIn(BaseHTTPRequestHandler):
    """Answers like a server of one model; ``answers`` overrides by path."""

    answers: ClassVar[dict[str, tuple[int, Any]]] = {}
    bodies: ClassVar[list[dict[str, Any]]] = []
    delay_s = 0.0

    def do_GET(self) -> None:
        self.reply(200, {"data": [{"id": "tiny", "max_model_len": 32}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).bodies.append(body)
        probe = "allowed_token_ids" in body
        if not probe:
            time.sleep(self.delay_s)
        choices = [
            {
                "index": j,
                "token_ids": [5 + j, EOS],
                "finish_reason": "stop",
                "logprobs": {"token_logprobs": [0.0, -1.0]},
            }
            for j in range(body.get("n", 1))
        ]
        if probe:
            choices[0]["logprobs"] = {"token_logprobs": [0.0]}
        self.reply(*self.answers.get(self.path, (200, {"choices": choices})))

    def reply(self, status: int, body: Any) -> None:
        # The client of the test that hangs is gone by now.
        with contextlib.suppress(BrokenPipeError):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Keeps quiet."""


@pytest.fixture
def stand_in() -> Iterator[tuple[type[StandIn], str]]:
    handler = type("Handler", (StandIn,), {"answers": {}, "bodies": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield handler, f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()


def connect(url: str, timeout_s: float = 10.0) -> ServerSampler:
    return ServerSampler(ServerConfig(url, timeout_s=timeout_s), eos_token_ids=[EOS], seed=7, max_model_len=128)


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
    assert completions[1].logprobs == (0.0, -1.0)
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


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [("/v1/completions", 500, "answered 500"), ("/v1/completions", 400, "answered 400")],
)
def test_refusals_carry_the_answer(stand_in: tuple[type[StandIn], str], path: str, status: int, message: str) -> None:
    handler, url = stand_in
    sampler = connect(url)
    handler.answers[path] = (status, {"error": "for a reason"})
    with pytest.raises(ServerError, match=f"{message}.*for a reason"):
        sampler.sample([SampleRequest(0, (4,), 1, PARAMS, (1,))])


def test_a_server_that_hangs_is_named_in_time(stand_in: tuple[type[StandIn], str]) -> None:
    handler, url = stand_in
    sampler = connect(url, timeout_s=0.3)
    handler.delay_s = 3.0
    started = time.monotonic()
    with pytest.raises(ServerError, match=r"no answer within 0\.3 s"):
        sampler.sample([SampleRequest(0, (4,), 1, PARAMS, (1,))])
    assert time.monotonic() - started < 2.0


def test_unprocessed_logprobs_are_refused(stand_in: tuple[type[StandIn], str]) -> None:
    handler, url = stand_in
    handler.answers["/v1/completions"] = (200, {"choices": [{"logprobs": {"token_logprobs": [-2.5]}}]})
    with pytest.raises(ServerError, match="--logprobs-mode processed_logprobs"):
        connect(url)


def test_a_server_without_weight_endpoints_is_named(stand_in: tuple[type[StandIn], str]) -> None:
    handler, url = stand_in
    sampler = connect(url)
    handler.answers["/collective_rpc"] = (404, {"detail": "Not Found"})
    with pytest.raises(ServerError, match=r"VLLM_SERVER_DEV_MODE=1.*answered 404"):
        sampler.load(WeightUpdate(1, {"a": torch.zeros(2)}))


def test_wrong_addresses() -> None:
    with pytest.raises(ValueError, match=r"needs rollout\.server\.base_url"):
        ServerSampler(ServerConfig(), eos_token_ids=[EOS], seed=0, max_model_len=8)
    with pytest.raises(ValueError, match="must begin with http"):
        connect("localhost:8000")
    with pytest.raises(ServerError, match="can't be reached"):
        connect("http://127.0.0.1:9/v1")


# -- a real server ------------------------------------------------------------------------------------------


def save_tokenizer(folder: Path) -> None:
    """The server wants a tokenizer; one word per id will do."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {f"w{index}": index for index in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w2"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="w2", eos_token="w1", pad_token="w0").save_pretrained(
        folder
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served")
    tiny_qwen2(head_dim=32).save_pretrained(folder)
    save_tokenizer(folder)
    port = free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--port", str(port)]
    options = "--host 127.0.0.1 --dtype float32 --enforce-eager --max-model-len 128 --max-num-seqs 32 --block-size 32"
    options += " --logprobs-mode processed_logprobs --generation-config vllm --no-enable-chunked-prefill"
    options += " --kv-cache-memory-bytes 16777216 --worker-extension-cls rlinf.samplers.vllm_weights.WeightReceiver"
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "VLLM_SERVER_DEV_MODE": "1",
        "TORCH_COMPILE_DISABLE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen([*command, *options.split()], env=environment, stdout=output, stderr=output)
    try:
        wait_until_ready(f"http://127.0.0.1:{port}/health", process, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(timeout=60)


def wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path, limit_s: float = 280.0) -> None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            urllib.request.urlopen(url, timeout=5)
            return
        except OSError:
            time.sleep(1.0)
    pytest.fail(f"the server was not ready within {limit_s} s: {log.read_text()[-3000:]}")


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
def test_real_server_samples_and_takes_weights(server: str) -> None:
    model = tiny_qwen2(head_dim=32)
    sampler = ServerSampler(
        ServerConfig(server, timeout_s=120.0),
        eos_token_ids=[EOS],
        seed=7,
        max_model_len=128,
        layout=WeightLayout.of_model(model),
    )
    for temperature in (1.0, 0.7):
        check_logprobs(sampler.sample, model, temperature)
    requests = make_requests(PARAMS)
    assert [c.token_ids for c in sampler.sample(requests)] == [c.token_ids for c in sampler.sample(requests)]
    for version in (1, 2):
        generator = torch.Generator().manual_seed(version)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
        sampler.load(WeightUpdate(version, {name: p.detach() for name, p in model.named_parameters()}))
        check_logprobs(sampler.sample, model, 1.0)
    (done,) = sampler.sample([SampleRequest(0, (4,), 1, PARAMS, (1,))])
    assert set(done.policy_version) == {2}


def check_logprobs(sample: Callable[..., Any], model: Any, temperature: float) -> None:
    """What the server reports is what a forward pass of the learner's weights says."""
    requests = make_requests(SamplingParams(max_new_tokens=12, temperature=temperature))
    for done in sample(requests):
        prompt = requests[done.request_id].prompt_ids
        expected = forward_logprobs(model, prompt, done.token_ids, temperature)
        torch.testing.assert_close(torch.tensor(done.logprobs), expected, atol=5e-5, rtol=0)
