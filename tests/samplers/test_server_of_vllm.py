"""A real vLLM server on the CPU: log-probabilities, weights, responses that are cut off and continued, its end."""

from __future__ import annotations

import importlib.util
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tiny_models import EOS, VOCABULARY, forward_logprobs, make_requests, tiny_qwen2
from transformers import PreTrainedModel
from vllm_server import VllmServer, save_word_tokenizer, served

from rlinf.data.messages import Completion, SampleRequest, SamplingParams, WeightUpdate
from rlinf.models.weight_digest import SentWeights, asked_of, differences
from rlinf.models.weight_update import WeightLayout
from rlinf.samplers.server import ServerSampler
from rlinf.samplers.server_http import ServerError
from rlinf.schema.rollout import ServerConfig

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]
PARAMS = SamplingParams(max_new_tokens=6)
LONG = 240


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    folder = tmp_path_factory.mktemp("served")
    tiny_qwen2(head_dim=32).save_pretrained(folder)
    save_word_tokenizer(folder, VOCABULARY)
    with served(folder, max_model_len=256) as running:
        yield running


@pytest.fixture
def model() -> PreTrainedModel:
    return tiny_qwen2(head_dim=32)


def connect(server: VllmServer, model: PreTrainedModel, *, timeout_s: float = 120.0, **options: Any) -> ServerSampler:
    """A sampler whose server has the weights of ``model``."""
    sampler = ServerSampler(
        ServerConfig(server.url, timeout_s=timeout_s),
        eos_token_ids=[EOS],
        seed=7,
        max_model_len=256,
        layout=WeightLayout.of_model(model),
        **options,
    )
    push(sampler, model, 0)
    return sampler


def push(sampler: ServerSampler, model: PreTrainedModel, version: int) -> None:
    sampler.load(WeightUpdate(version, {name: p.detach() for name, p in model.named_parameters()}))


def perturb(model: PreTrainedModel, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))


def check_logprobs(sampler: ServerSampler, model: PreTrainedModel, temperature: float) -> None:
    """The server reports what a forward pass of the learner's weights computes."""
    requests = make_requests(SamplingParams(max_new_tokens=12, temperature=temperature))
    for done in sampler.sample(requests):
        expected = forward_logprobs(model, requests[done.request_id].prompt_ids, done.token_ids, temperature)
        torch.testing.assert_close(torch.tensor(done.logprobs), expected, atol=5e-5, rtol=0)


def test_samples_and_takes_weights(server: VllmServer, model: PreTrainedModel) -> None:
    sampler = connect(server, model)
    for temperature in (1.0, 0.7):
        check_logprobs(sampler, model, temperature)
    for version in (1, 2):
        perturb(model, version)
        push(sampler, model, version)
        check_logprobs(sampler, model, 1.0)
    (done,) = sampler.sample([SampleRequest(0, (4,), 1, PARAMS, (1,))])
    assert set(done.policy_version) == {2}


def test_weights_are_read_back(server: VllmServer, model: PreTrainedModel) -> None:
    sampler, sent = connect(server, model), SentWeights()
    perturb(model, 4)
    sent.add(WeightUpdate(3, {name: p.detach() for name, p in model.named_parameters()}))
    stale = sampler.held_digests(asked_of(sent.digests()))
    assert not isinstance(stale, str)
    assert len(differences(sent.digests(), stale)) == len(sent.digests())
    push(sampler, model, 3)
    held = sampler.held_digests(asked_of(sent.digests()))
    assert not isinstance(held, str)
    assert None not in held.values()
    assert differences(sent.digests(), held) == []


def test_answers_are_the_same_in_pieces_and_whole(server: VllmServer, model: PreTrainedModel) -> None:
    requests = make_requests(SamplingParams(max_new_tokens=20))
    whole = connect(server, model, abortable=False).sample(requests)
    pieces = connect(server, model).sample(requests)
    assert [(c.token_ids, c.finish_reason) for c in whole] == [(c.token_ids, c.finish_reason) for c in pieces]
    assert {c.finish_reason for c in whole} == {"stop", "length"}


def test_abort_and_continue_under_new_weights(server: VllmServer, model: PreTrainedModel) -> None:
    sampler = connect(server, model)
    long, aborted = cut_in_the_middle(sampler)
    assert [(done.sample_index, done.finish_reason) for done in aborted] == [(n, "abort") for n in range(1, 9)]
    for done in aborted:
        expected = forward_logprobs(model, long.prompt_ids, done.token_ids)
        torch.testing.assert_close(torch.tensor(done.logprobs), expected, atol=5e-5, rtol=0)
    deadline = time.monotonic() + 30
    while server.running():
        assert time.monotonic() < deadline, "the server must end requests that no client awaits"
        time.sleep(0.1)
    perturb(model, 3)
    push(sampler, model, 9)
    rest = sampler.sample([continued(long, done, name) for name, done in enumerate(aborted)])
    for first, second in zip(aborted, rest, strict=True):
        assert first.sample_index == second.sample_index
        assert len(first.token_ids) + len(second.token_ids) == LONG
        assert set(first.policy_version) == {0}
        assert set(second.policy_version) == {9}
        expected = forward_logprobs(model, long.prompt_ids, first.token_ids + second.token_ids)
        torch.testing.assert_close(torch.tensor(second.logprobs), expected[len(first.token_ids) :], atol=5e-5, rtol=0)


def cut_in_the_middle(sampler: ServerSampler) -> tuple[SampleRequest, list[Completion]]:
    """A request and its responses, which another request's end has cut off after some tokens.

    When the server begins with either is its own matter: where one was through before the other had begun, once more.
    """
    params = SamplingParams(max_new_tokens=LONG, ignore_eos=True)
    for attempt in range(10):
        short = SampleRequest(1, (4, 5), 1, SamplingParams(max_new_tokens=60, ignore_eos=True), (1, attempt))
        long = SampleRequest(0, (4, 5, 6), 8, params, (0, attempt), first_sample=1)
        stream = sampler.stream([short, long])
        first = next(stream)
        aborted = sampler.abort([0])
        rest = list(stream)
        if first.request_id == 1 and not rest and all(0 < len(done.token_ids) < LONG for done in aborted):
            return long, aborted
    pytest.fail("the long request was never cut in the middle")


def continued(request: SampleRequest, done: Completion, name: int) -> SampleRequest:
    return SampleRequest(
        name, request.prompt_ids, 1, request.params, request.key, prefix=done.token_ids, first_sample=done.sample_index
    )


def test_a_server_that_stalls_or_dies_is_named_in_time(server: VllmServer, model: PreTrainedModel) -> None:
    """The last test of this file: it ends the server."""
    params = SamplingParams(max_new_tokens=LONG, ignore_eos=True)
    short = SampleRequest(0, (4, 5), 1, PARAMS, (0,))
    long = SampleRequest(1, (4, 5), 32, params, (1,))
    # In one piece: reading every token, this process could lag so far behind that the server has long been through.
    sampler = connect(server, model, timeout_s=10.0, abortable=False)
    stream = sampler.stream([short, long])
    next(stream)
    server.signal(signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(ServerError, match=rf"{server.url}.* 10 s "):
        list(stream)
    assert time.monotonic() - began < 30.0
    server.signal(signal.SIGCONT)
    deadline = time.monotonic() + 30
    while server.running():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert sampler.sample([short]), "what was only paused goes on"
    stream = sampler.stream([short, long])
    next(stream)
    server.signal(signal.SIGKILL)
    with pytest.raises(ServerError, match=rf"{server.url}.*(hung up|can't be reached)"):
        list(stream)
    with pytest.raises(ServerError, match="can't be reached"):
        sampler.sample([short])
