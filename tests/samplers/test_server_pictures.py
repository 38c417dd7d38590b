"""Pictures for a model server, against a stand-in: the requests, and how a server that cannot read them is named."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any

import pytest
from test_server_sampler import StandIn
from tiny_models import EOS
from vision_models import picture, tiny_vision, tokenizer_of

from rlinf.data.messages import SampleRequest, SamplingParams
from rlinf.data.pictures import digest, marked
from rlinf.models.vision.reading import excluded_ids
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.samplers.server import ServerSampler
from rlinf.samplers.server_http import ServerError
from rlinf.samplers.sight import Sight
from rlinf.schema.rollout import ServerConfig

PARAMS = SamplingParams(max_new_tokens=6)


class Looking(StandIn):
    """Answers requests with pictures in the form of vLLM's endpoint for tokens; ``read`` prompt tokens each."""

    read = 0
    paths: list[str]

    def do_GET(self) -> None:
        self.reply(200, {"data": [{"id": "tiny", "max_model_len": 128}]})

    def stream(self, body: dict[str, Any]) -> None:
        type(self).paths.append(self.path)
        if "token_ids" not in body:
            super().stream(body)
            return
        self.send_response(200)
        self.end_headers()
        for index, tokens in enumerate(([5], [EOS])):
            logprobs = {"content": [{"token_id": token, "logprob": -0.25} for token in tokens]}
            reason = "stop" if index else None
            choice = {"index": 0, "token_ids": tokens, "finish_reason": reason, "logprobs": logprobs}
            event = {"choices": [choice], **({} if index else {"prompt_token_ids": [0] * self.read})}
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")


@pytest.fixture
def looking() -> Iterator[tuple[type[Looking], str]]:
    handler = type("Handler", (Looking,), {"answers": {}, "bodies": [], "paths": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield handler, f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()


def seen() -> tuple[Sight, Any, SampleRequest]:
    """A sight, its tokenizer, and a request with a picture."""
    tokenizer = tokenizer_of("qwen2_vl")
    model, reader = tiny_vision("qwen2_vl", tokenizer)
    sight = Sight(reader, excluded_ids(model.config, tokenizer), tokenizer.get_vocab()["<|image_pad|>"])
    uri = picture(0)
    prompt = tuple(PromptRenderer(tokenizer, reader=reader).prompt(marked(uri) + "Which?"))
    return sight, tokenizer, SampleRequest(0, prompt, 1, PARAMS, (0,), pictures=(uri,))


def connect(url: str, sight: Sight) -> ServerSampler:
    config = ServerConfig(url, timeout_s=10.0)
    return ServerSampler(config, eos_token_ids=[EOS], seed=7, max_model_len=128, sight=sight)


def test_pictures_are_sent_as_data_urls_and_the_rest_as_tokens(looking: tuple[type[Looking], str]) -> None:
    handler, url = looking
    sight, tokenizer, request = seen()
    handler.read = len(request.prompt_ids)
    sampler = connect(url, sight)
    assert handler.bodies[-1] == {"method": "exclude", "args": [list(sight.excluded)]}
    words = SampleRequest(1, tuple(tokenizer.encode("Which?")), 1, PARAMS, (1,))
    first, second = sampler.sample([request, words])
    assert list(first.token_ids) == [5, EOS]
    assert list(first.logprobs) == [-0.25, -0.25]
    assert second.token_ids
    body = next(body for body in handler.bodies if "token_ids" in body)
    assert body["content_parts"] == [
        {"type": "image_url", "url": request.pictures[0], "uuid": digest(request.pictures[0])}
    ]
    assert body["token_ids"].count(sight.placeholder) == 1
    assert [token for token in body["token_ids"] if token != sight.placeholder] == [
        token for token in request.prompt_ids if token >= 0
    ]
    assert body["sampling_params"]["max_tokens"] == PARAMS.max_new_tokens
    assert sorted(handler.paths) == ["/inference/v1/generate", "/v1/completions"]


def test_a_server_that_reads_pictures_otherwise_is_named(looking: tuple[type[Looking], str]) -> None:
    handler, url = looking
    sight, _, request = seen()
    handler.read = len(request.prompt_ids) + 3
    sampler = connect(url, sight)
    with pytest.raises(ServerError, match=r"tokens of a prompt with pictures, and this run .*mm-processor-kwargs"):
        sampler.sample([request])


def test_a_server_that_draws_marks_of_pictures_is_refused(looking: tuple[type[Looking], str]) -> None:
    handler, url = looking
    handler.answers["/collective_rpc"] = (404, {"detail": "Not Found"})
    with pytest.raises(ServerError, match=r"cannot leave the tokens of pictures out.*WeightReceiver"):
        connect(url, seen()[0])


def test_without_a_token_for_pictures_nothing_is_sent(looking: tuple[type[Looking], str]) -> None:
    _, url = looking
    sight, _, request = seen()
    sampler = connect(url, Sight(sight.reader, sight.excluded))
    with pytest.raises(ServerError, match="no token for pictures"):
        sampler.sample([request])
