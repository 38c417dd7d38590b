"""Sessions: requests come and go in any order, and no response depends on that, to the last bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tiny_models import forward_logprobs, make_requests, tiny_qwen2
from transformers import PreTrainedModel

from rlinf.data.messages import Completion, SampleRequest, SamplingParams, WeightUpdate
from rlinf.samplers.hf import HFSampler

PARAMS = SamplingParams(max_new_tokens=24)
Make = Callable[..., HFSampler]


def answered(sampler: HFSampler, requests: list[SampleRequest], *, seed: int | None = None) -> list[Completion]:
    """Responses of a session; with a ``seed`` the requests come in random portions between random numbers of tokens."""
    order = random.Random(seed)
    waiting = list(requests)
    if seed is not None:
        order.shuffle(waiting)
    session, done = sampler.session(), []
    while waiting or session.open:
        count = len(waiting) if seed is None else order.randint(0, 2)
        session.submit(waiting[:count])
        del waiting[:count]
        for _ in range(order.randint(1, 6)):
            done += session.poll(0.0)
    session.close()
    return sorted(done, key=lambda one: (one.request_id, one.sample_index))


_OTHER = replace(PARAMS, temperature=0.7, top_p=0.9, repetition_penalty=1.2)


@pytest.mark.parametrize("params", [PARAMS, pytest.param(_OTHER, marks=pytest.mark.slow)])
def test_a_response_does_not_depend_on_what_else_is_open(make_sampler: Make, params: SamplingParams) -> None:
    requests = make_requests(params, prompts=11, n=3)
    at_once = answered(make_sampler(), requests)
    assert len(at_once) == 33
    for seed in range(3):
        assert answered(make_sampler(), requests, seed=seed) == at_once
    assert answered(make_sampler(batch=2), requests) == at_once
    streamed = make_sampler().sample(requests)
    assert [one.token_ids for one in streamed] == [one.token_ids for one in at_once]


def test_rows_of_very_different_lengths_keep_to_themselves(make_sampler: Make, model: PreTrainedModel) -> None:
    """They attend over columns of their own, are moved to where rows of their length stand, and are interrupted."""
    requests = [
        replace(one, n=1, params=replace(PARAMS, ignore_eos=True, max_new_tokens=4 + (53 * index) % 140))
        for index, one in enumerate(make_requests(PARAMS, prompts=10, n=1))
    ]
    at_once = answered(make_sampler(max_model_len=192), requests)
    assert answered(make_sampler(max_model_len=192, batch=3), requests, seed=2) == at_once
    for request, done in zip(requests, at_once, strict=True):
        expected = forward_logprobs(model, request.prompt_ids, done.token_ids)
        torch.testing.assert_close(torch.tensor(done.logprobs), expected, atol=2e-4, rtol=0)
    session, parts = make_sampler(max_model_len=192).session(), []
    session.submit(requests)
    for _ in range(70):
        parts += session.poll(0.0)
    aborted = session.abort([one.request_id for one in requests])
    assert aborted
    assert parts
    rest = [replace(requests[one.request_id], prefix=one.token_ids) for one in aborted if one.token_ids]
    session.submit(rest)
    while session.open:
        parts += session.poll(1.0)
    session.close()
    begun = {one.request_id: one for one in aborted}
    for one in parts:
        first = begun.get(one.request_id)
        whole = at_once[one.request_id]
        logprobs = [*(first.logprobs if first else ()), *one.logprobs]
        assert logprobs == list(whole.logprobs)


def test_rows_that_change_with_their_neighbours_are_decoded_alone(
    make_sampler: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlinf.samplers.slots.supports_slots", lambda model: False)
    requests = make_requests(PARAMS, prompts=4)
    alone = answered(make_sampler(), requests)
    assert answered(make_sampler(), requests, seed=1) == alone
    assert [one.token_ids for one in make_sampler().sample(requests)] == [one.token_ids for one in alone]


def test_new_weights_hold_from_the_next_token_on(make_sampler: Make, model: PreTrainedModel) -> None:
    requests = make_requests(replace(PARAMS, ignore_eos=True), prompts=3, n=1)
    sampler = make_sampler()
    session = sampler.session()
    session.submit(requests)
    for _ in range(5):
        assert not session.poll(0.0)
    sampler.load(WeightUpdate(3, dict(tiny_qwen2(seed=1).named_parameters())))
    done: list[Completion] = []
    while session.open:
        done += session.poll(1.0)
    session.close()
    assert {one.policy_version for one in done} == {(0,) * 5 + (3,) * 19}
    first = done[0]
    rest = replace(requests[first.request_id], prefix=first.token_ids[:5])
    (continued,) = sampler.sample([rest])
    assert continued.token_ids == first.token_ids[5:]


def test_abort_hands_out_what_there_is(make_sampler: Make) -> None:
    session = make_sampler().session()
    session.submit(make_requests(replace(PARAMS, ignore_eos=True), prompts=2, n=1))
    session.poll(0.0)
    (gone,) = session.abort([0])
    assert (gone.finish_reason, len(gone.token_ids), session.open) == ("abort", 1, 1)
    with pytest.raises(ValueError, match="request 1 is open"):
        session.submit(make_requests(PARAMS, prompts=2, n=1)[1:])
    session.close()
    assert session.open == 0
    assert torch.get_num_threads() == 1


def test_a_conversations_next_turn_computes_only_what_is_new(make_sampler: Make, model: PreTrainedModel) -> None:
    first = replace(make_requests(PARAMS, prompts=3, n=1)[2], group=5)
    sampler = make_sampler()
    (response,) = answered(sampler, [first])
    again = replace(first, prompt_ids=(*first.prompt_ids, *response.token_ids, 7, 9), key=(11, 99))
    (alone,) = answered(sampler, [again])
    session = sampler.session()
    session.submit([first])
    while session.open:
        session.poll(1.0)
    computed: list[int] = []
    hook = model.register_forward_pre_hook(
        lambda module, args, given: computed.append(int((given["position_ids"] > 0).sum())), with_kwargs=True
    )
    session.submit([again])
    assert session.poll(0.0) == ([alone] if len(alone.token_ids) == 1 else [])
    hook.remove()
    assert computed == [3], "the last token of the response, and two new ones"
    done: list[Completion] = []
    while session.open:
        done += session.poll(1.0)
    session.close()
    assert done in ([alone], [])
    assert all(one.cached_tokens == len(first.prompt_ids) + len(response.token_ids) - 1 for one in done)


def test_a_continued_response_may_keep_the_keys_and_values_of_older_weights(
    make_sampler: Make, model: PreTrainedModel
) -> None:
    request = replace(make_requests(replace(PARAMS, ignore_eos=True), prompts=1, n=1)[0], group=3)
    newer = WeightUpdate(3, dict(tiny_qwen2(seed=1).named_parameters()))
    sampler = make_sampler(tiny_qwen2(), keep_cache=True)
    session = sampler.session()
    session.submit([request])
    for _ in range(9):
        session.poll(0.0)
    (begun,) = session.abort([request.request_id])
    session.close()
    sampler.load(newer)
    computed: list[int] = []
    hook = sampler._model.register_forward_pre_hook(
        lambda module, args, given: computed.append(int((given["position_ids"] > 0).sum())), with_kwargs=True
    )
    (rest,) = answered(sampler, [replace(request, prefix=begun.token_ids)])
    hook.remove()
    assert computed == [1] * (24 - 9), "nothing that was there is computed again"
    assert rest.cached_tokens == len(request.prompt_ids) + 8
    # The older weights up to the token before the last one of the prefix, the newer ones from that on.
    old, new = tiny_qwen2(), tiny_qwen2(seed=1)
    ids = torch.tensor([[*request.prompt_ids, *begun.token_ids, *rest.token_ids]])
    at = len(request.prompt_ids) + 8
    with torch.no_grad():
        states = old(ids[:, :at], use_cache=True).past_key_values
        logits = new(ids[:, at:-1], past_key_values=states, use_cache=True).logits[0]
    expected = logits.log_softmax(-1).gather(1, ids[0, at + 1 :, None])[:, 0]
    torch.testing.assert_close(torch.tensor(rest.logprobs), expected, atol=1e-5, rtol=0)
    # Without it all is computed again, and a prompt that begins again never keeps anything.
    (fresh,) = answered(make_sampler(tiny_qwen2(seed=1)), [replace(request, prefix=begun.token_ids)])
    assert fresh.logprobs != rest.logprobs
    (again,) = answered(sampler, [request])
    (alone,) = answered(make_sampler(tiny_qwen2(seed=1)), [request])
    assert again.logprobs == alone.logprobs


def test_the_rows_of_a_group_compute_their_prompt_once(make_sampler: Make, model: PreTrainedModel) -> None:
    """Also rows that join later, and those that go on after an interruption."""
    first = make_requests(replace(PARAMS, ignore_eos=True), prompts=3, n=1)[2]
    second = replace(first, request_id=7, first_sample=1)
    alone = answered(make_sampler(), [first]) + answered(make_sampler(), [second])
    computed: list[int] = []
    sampler = make_sampler()
    hook = model.register_forward_pre_hook(
        lambda module, args, given: computed.append(int((given["position_ids"] > 0).sum())), with_kwargs=True
    )
    session = sampler.session()
    session.submit([first])
    for _ in range(5):
        session.poll(0.0)
    session.submit([second])
    computed.clear()
    session.poll(0.0)
    assert computed == [2], "a token of the first row, and the last one of the prompt"
    begun = sorted(session.abort([first.request_id, second.request_id]), key=lambda one: one.request_id)
    session.close()
    session = sampler.session()
    session.submit([replace(first, prefix=begun[0].token_ids), replace(second, prefix=begun[1].token_ids)])
    session.poll(0.0)
    assert computed[-1] == len(first.prompt_ids) - 1 + len(begun[0].token_ids), "the first row, but for position 0"
    session.poll(0.0)
    assert computed[-1] == 1 + len(begun[1].token_ids), "a token of the first row, and the tokens of the second one"
    rest: list[Completion] = []
    while session.open:
        rest += session.poll(1.0)
    hook.remove()
    session.close()
    rest.sort(key=lambda one: one.request_id)
    for start, end, whole in zip(begun, rest, alone, strict=True):
        assert [*start.token_ids, *end.token_ids] == list(whole.token_ids)
        assert [*start.logprobs, *end.logprobs] == list(whole.logprobs)
