"""Real vLLM engines with tiny models, on a CPU: log-probabilities, weight updates, abort, restart."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
import torch
from tiny_models import EOS, VOCABULARY, forward_logprobs, make_requests, seen_tokens, tiny_qwen2
from transformers import PreTrainedModel

from rlinf.data.messages import Completion, SampleRequest, SamplingParams, WeightUpdate
from rlinf.interfaces import Sampler
from rlinf.models.weight_digest import SentWeights, asked_of, differences
from rlinf.models.weight_update import WeightUpdateError
from rlinf.samplers.vllm import EngineDiedError, VllmSampler
from rlinf.samplers.vllm_cache import cpu_block
from rlinf.schema.rollout import VllmConfig

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]

PARAMS = SamplingParams(max_new_tokens=16)
LONG_PROMPT = tuple(2 + i % (VOCABULARY - 2) for i in range(70))


def saved(folder: Path, *, tied: bool) -> Path:
    """A folder with the tiny model; its head is large enough for the engine's kernels."""
    tiny_qwen2(tied=tied, head_dim=32).save_pretrained(folder)
    return folder


def start(
    folder: Path,
    dtype: Literal["float32", "bfloat16"] = "float32",
    float32_logits: bool = False,
    **options: object,
) -> VllmSampler:
    config = VllmConfig(kv_cache_memory_mb=16, dtype=dtype, max_num_seqs=64, **options)  # type: ignore[arg-type]
    return VllmSampler(folder, config, eos_token_ids=[EOS], seed=7, max_model_len=128, float32_logits=float32_logits)


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[VllmSampler, bool]:
    tied: bool = request.param
    return start(saved(tmp_path_factory.mktemp("model"), tied=tied)), tied


one_engine = pytest.mark.parametrize("engine", [True], ids=["tied"], indirect=True)
"""For tests that start engines again, and do not depend on the values of their weights."""


@pytest.fixture
def sampler(engine: tuple[VllmSampler, bool]) -> VllmSampler:
    """The module's engine with the original weights."""
    sampler, tied = engine
    sampler.load(WeightUpdate(0, weights(tiny_qwen2(tied=tied, head_dim=32))))
    return sampler


@pytest.fixture
def model(engine: tuple[VllmSampler, bool]) -> PreTrainedModel:
    return tiny_qwen2(tied=engine[1], head_dim=32)


def weights(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def unlike(sampler: VllmSampler, sent: dict[str, torch.Tensor], version: int) -> list[str]:
    """The weights that the engine computes with otherwise than they were sent."""
    digests = SentWeights()
    digests.add(WeightUpdate(version, sent))
    held = sampler.held_digests(asked_of(digests.digests()))
    assert None not in held.values()
    return differences(digests.digests(), held)


def perturb(model: PreTrainedModel, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))


def gap(
    model: PreTrainedModel, requests: list[SampleRequest], completions: list[Completion], temperature: float = 1.0
) -> float:
    """Largest difference between reported log-probabilities and those of a forward pass."""
    prompts = {request.request_id: request.prompt_ids for request in requests}
    largest = 0.0
    for done in completions:
        expected = forward_logprobs(model, prompts[done.request_id], done.token_ids, temperature)
        largest = max(largest, float((torch.tensor(done.logprobs) - expected).abs().max()))
    return largest


def test_is_a_sampler(sampler: VllmSampler) -> None:
    assert isinstance(sampler, Sampler)


@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.0])
def test_logprobs_are_those_of_a_forward_pass(sampler: VllmSampler, model: PreTrainedModel, temperature: float) -> None:
    requests = make_requests(SamplingParams(max_new_tokens=16, temperature=temperature))
    completions = sampler.sample(requests)
    assert [(c.request_id, c.sample_index) for c in completions] == [(i, j) for i in range(6) for j in range(3)]
    assert gap(model, requests, completions, temperature or 1.0) < 5e-5


def test_further_arguments_reach_a_real_engine(tmp_path: Path) -> None:
    further = start(saved(tmp_path, tied=True), extra={"max_num_batched_tokens": 144, "scheduling_policy": "priority"})
    scheduler = further._engine.vllm_config.scheduler_config
    assert (scheduler.max_num_batched_tokens, scheduler.policy) == (144, "priority")
    model = tiny_qwen2(tied=True, head_dim=32)
    further.load(WeightUpdate(3, weights(model)))
    requests = make_requests(PARAMS)
    assert gap(model, requests, further.sample(requests)) < 5e-5


def test_logits_are_of_float32_on_request(tmp_path: Path) -> None:
    """bfloat16 has 8 bits, so that many of its logits of one position are equal; those of float32 are not."""
    processor = start(saved(tmp_path, tied=True), "bfloat16", float32_logits=True)
    engine = processor._engine
    assert engine.vllm_config.model_config.head_dtype == torch.float32
    processor.load(WeightUpdate(3, weights(tiny_qwen2(tied=True, head_dim=32))))
    worker = engine.model_executor.driver_worker
    model = worker.worker.model_runner.model
    hidden = torch.randn(4, model.config.hidden_size, dtype=torch.bfloat16)
    logits = model.compute_logits(hidden)
    assert logits.dtype == torch.float32
    weight = model.lm_head.weight[:VOCABULARY].float()
    torch.testing.assert_close(logits[:, :VOCABULARY], hidden.float() @ weight.t(), atol=1e-6, rtol=1e-6)


def test_filtered_logprobs_follow_the_sampling_distribution(sampler: VllmSampler, model: PreTrainedModel) -> None:
    from rlinf.models.distribution import processed_logits

    params = SamplingParams(max_new_tokens=10, temperature=0.8, top_k=6, top_p=0.9, repetition_penalty=1.2)
    request = make_requests(params, prompts=1, n=8)[0]
    for done in sampler.sample([request]):
        ids = torch.tensor(request.prompt_ids + done.token_ids)
        start_position, length = len(request.prompt_ids), len(done.token_ids)
        with torch.no_grad():
            logits = model(input_ids=ids[None]).logits[0, start_position - 1 : -1]
        seen = seen_tokens(ids, start_position, length, VOCABULARY)
        expected = processed_logits(logits, params, seen=seen).log_softmax(-1)
        expected = expected.gather(-1, ids[start_position:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(done.logprobs), expected, atol=5e-5, rtol=0)


def test_response_does_not_depend_on_the_batch(sampler: VllmSampler) -> None:
    requests = make_requests(PARAMS)
    together = sampler.sample(requests)
    alone = [done for request in reversed(requests) for done in sampler.sample([request])]
    by_id = {(done.request_id, done.sample_index): done for done in alone}
    for done in together:
        assert by_id[done.request_id, done.sample_index].token_ids == done.token_ids
    assert len({done.token_ids for done in together}) > len(together) // 2


def test_finish_reasons(sampler: VllmSampler) -> None:
    requests = [
        SampleRequest(0, tuple([3] * 128), 2, PARAMS, (0,)),
        SampleRequest(1, (3, 4), 20, SamplingParams(max_new_tokens=500), (1,)),
        SampleRequest(2, (3, 4), 1, SamplingParams(max_new_tokens=4), (2,), prefix=(5, 6, 7, 8)),
    ]
    completions = sampler.sample(requests)
    assert [done.finish_reason for done in completions[:2]] == ["too_long"] * 2
    assert completions[-1] == Completion(2, 0, (), (), "length", ())
    for done in completions[2:-1]:
        assert EOS not in done.token_ids[:-1]
        assert (done.token_ids[-1] == EOS) == (done.finish_reason == "stop")
        assert done.finish_reason == "stop" or len(done.token_ids) == 126


def test_ten_updates_in_a_row_keep_the_logprobs_together(sampler: VllmSampler, model: PreTrainedModel) -> None:
    requests = make_requests(PARAMS)
    for version in range(1, 11):
        before = gap(model, requests, sampler.sample(requests))
        assert before < 5e-5
        perturb(model, version)
        stale = gap(model, requests, sampler.sample(requests))
        assert stale > 0.01, "the perturbation must show, or this test shows nothing"
        metrics = sampler.load(WeightUpdate(version, weights(model)))
        assert metrics["weight_update_bytes"] == sum(p.numel() * 4 for p in model.parameters())
        completions = sampler.sample(requests)
        assert gap(model, requests, completions) < 5e-5
        assert {v for done in completions for v in done.policy_version} == {version}


def test_weights_are_read_back_from_what_computes(sampler: VllmSampler, model: PreTrainedModel) -> None:
    """Also where projections are joined and a CPU keeps packed copies alone."""
    assert unlike(sampler, weights(model), 1) == []
    perturb(model, 1)
    assert len(unlike(sampler, weights(model), 2)) == len(weights(model))
    sampler.load(WeightUpdate(2, weights(model)))
    assert unlike(sampler, weights(model), 2) == []
    changed = {**weights(model), "model.layers.1.self_attn.v_proj.weight": torch.zeros(64, 128)}
    assert [line.split(":")[0] for line in unlike(sampler, changed, 3)] == ["model.layers.1.self_attn.v_proj.weight"]


def test_updated_engine_equals_a_fresh_one(
    sampler: VllmSampler, model: PreTrainedModel, tmp_path: Path, engine: tuple[VllmSampler, bool]
) -> None:
    perturb(model, 3)
    model.save_pretrained(tmp_path)
    sampler.load(WeightUpdate(4, weights(model)))
    requests = make_requests(PARAMS)
    fresh = start(tmp_path).sample(requests)
    assert [(c.token_ids, c.logprobs) for c in sampler.sample(requests)] == [(c.token_ids, c.logprobs) for c in fresh]


def test_prefix_cache_shares_the_prefill_and_is_dropped_by_an_update(
    sampler: VllmSampler, model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached: list[int] = []
    step = sampler._engine.step

    def recording_step() -> list:  # type: ignore[type-arg]
        outputs = step()
        cached.extend(output.num_cached_tokens for output in outputs if output.finished)
        return outputs

    monkeypatch.setattr(sampler._engine, "step", recording_step)
    request = SampleRequest(0, LONG_PROMPT, 8, PARAMS, (0,))
    sampler.sample([request])
    assert sorted(cached) == [0] + [64] * 7, "all but the first of the group take the prompt's whole blocks as they are"
    cached.clear()
    perturb(model, 1)
    sampler.load(WeightUpdate(1, weights(model)))
    completions = sampler.sample([request])
    assert min(cached) == 0
    assert gap(model, [request], completions) < 5e-5


@pytest.mark.skipif(cpu_block("bfloat16") != 16, reason="blocks are larger on this CPU")
def test_in_16_bits_a_group_shares_blocks_of_16(tmp_path: Path) -> None:
    sampler = start(saved(tmp_path, tied=True), dtype="bfloat16")
    request = SampleRequest(0, LONG_PROMPT[:60], 8, PARAMS, (0,))
    completions = sampler.sample([request])
    assert sorted(done.cached_tokens for done in completions) == [0] + [48] * 7
    assert gap(tiny_qwen2(tied=True, head_dim=32), [request], completions) < 0.05, "what 16 bits round"


def test_the_next_turn_of_a_conversation_computes_only_what_is_new(
    sampler: VllmSampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached: list[int] = []
    step = sampler._engine.step

    def recording_step() -> list:  # type: ignore[type-arg]
        outputs = step()
        cached.extend(output.num_cached_tokens for output in outputs if output.finished)
        return outputs

    monkeypatch.setattr(sampler._engine, "step", recording_step)
    params = SamplingParams(max_new_tokens=30, ignore_eos=True)
    (first,) = sampler.sample([SampleRequest(0, LONG_PROMPT, 1, params, (0, 0))])
    conversation = (*LONG_PROMPT, *first.token_ids)
    cached.clear()
    (second,) = sampler.sample(
        [SampleRequest(0, (*conversation, 5, 6, 7), 1, SamplingParams(max_new_tokens=4), (0, 1))]
    )
    # Whole blocks of 32 tokens; the response's last token was drawn but never computed with.
    assert cached == [(len(conversation) - 1) // 32 * 32]
    assert cached[0] > len(LONG_PROMPT)
    assert second.cached_tokens == cached[0]


def test_abort_and_continue_under_new_weights(sampler: VllmSampler, model: PreTrainedModel) -> None:
    params = SamplingParams(max_new_tokens=24, ignore_eos=True)
    long, short = (
        SampleRequest(0, LONG_PROMPT, 1, params, (0,)),
        SampleRequest(1, (4, 5), 1, SamplingParams(max_new_tokens=6, ignore_eos=True), (1,)),
    )
    stream = sampler.stream([long, short])
    assert next(stream).request_id == 1
    (aborted,) = sampler.abort([0])
    assert aborted.finish_reason == "abort"
    assert 1 <= len(aborted.token_ids) < 24
    assert list(stream) == []
    assert gap(model, [long], [aborted]) < 5e-5
    perturb(model, 2)
    sampler.load(WeightUpdate(9, weights(model)))
    (rest,) = sampler.sample([SampleRequest(5, LONG_PROMPT, 1, params, (0,), prefix=aborted.token_ids)])
    assert len(aborted.token_ids) + len(rest.token_ids) == 24
    assert set(aborted.policy_version) == {0}
    assert set(rest.policy_version) == {9}
    whole = forward_logprobs(model, LONG_PROMPT, aborted.token_ids + rest.token_ids)[len(aborted.token_ids) :]
    torch.testing.assert_close(torch.tensor(rest.logprobs), whole, atol=5e-5, rtol=0)


def test_abort_spares_what_the_engine_has_finished_already(sampler: VllmSampler) -> None:
    params = SamplingParams(max_new_tokens=6, ignore_eos=True)
    stream = sampler.stream([SampleRequest(i, (4, 5), 1, params, (i,)) for i in range(3)])
    first = next(stream)  # all three end in the same step of the engine
    assert sampler.abort([0, 1, 2]) == []
    rest = list(stream)
    assert {done.request_id for done in (first, *rest)} == {0, 1, 2}
    assert all(len(done.token_ids) == 6 for done in rest)


def test_new_weights_in_the_middle_of_a_stream(sampler: VllmSampler, model: PreTrainedModel) -> None:
    params = SamplingParams(max_new_tokens=24, ignore_eos=True)
    request = SampleRequest(0, LONG_PROMPT, 1, params, (0,))
    short = SampleRequest(1, (4, 5), 1, SamplingParams(max_new_tokens=6, ignore_eos=True), (1,))
    stream = sampler.stream([request, short])
    assert next(stream).request_id == 1
    perturb(model, 2)
    sampler.load(WeightUpdate(3, weights(model)))
    (done,) = list(stream)
    first_new = done.policy_version.index(3)
    assert 0 < first_new < 24
    new = forward_logprobs(model, LONG_PROMPT, done.token_ids)[first_new:]
    torch.testing.assert_close(torch.tensor(done.logprobs[first_new:]), new, atol=5e-5, rtol=0)


@one_engine
def test_engine_that_fails_is_restarted_once_with_current_weights(
    sampler: VllmSampler, model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    perturb(model, 5)
    sampler.load(WeightUpdate(6, weights(model)))
    requests = make_requests(PARAMS)
    expected = sampler.sample(requests)
    restarts, steps = sampler.restarts, iter(range(100))
    real_step = sampler._engine.step
    monkeypatch.setattr(sampler._engine, "step", lambda: fail_at(5, steps, real_step))
    with caplog.at_level(logging.ERROR):
        completions = sampler.sample(requests)
    assert "out of memory in this test" in caplog.text
    assert sampler.restarts == restarts + 1
    assert [(c.token_ids, c.logprobs) for c in completions] == [(c.token_ids, c.logprobs) for c in expected]
    assert gap(model, requests, completions) < 5e-5


def fail_at(number: int, steps: Iterator[int], step: Callable[[], list]) -> list:  # type: ignore[type-arg]
    if next(steps) == number:
        raise RuntimeError("out of memory in this test")
    return step()


@one_engine
def test_engine_that_fails_twice_is_an_error(sampler: VllmSampler, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object) -> list:  # type: ignore[type-arg]
        raise RuntimeError("broken for good")

    with monkeypatch.context() as patch:
        patch.setattr("vllm.v1.engine.llm_engine.LLMEngine.step", broken)
        with pytest.raises(EngineDiedError, match="broken for good"):
            sampler.sample(make_requests(PARAMS, prompts=1))
    assert sampler.sample(make_requests(PARAMS, prompts=1))


def test_update_that_does_not_fit_leaves_the_engine_alone(sampler: VllmSampler, model: PreTrainedModel) -> None:
    given = weights(model)
    with pytest.raises(WeightUpdateError, match=r"lacks model\.norm\.weight.*instead of"):
        sampler.load(
            WeightUpdate(
                1,
                {n: p for n, p in given.items() if n != "model.norm.weight"}
                | {"model.layers.0.input_layernorm.weight": torch.zeros(3)},
            )
        )
    requests = make_requests(PARAMS, prompts=2)
    assert gap(model, requests, sampler.sample(requests)) < 5e-5


def test_sleep_and_wake_do_nothing_on_a_cpu(sampler: VllmSampler) -> None:
    sampler.sleep()
    sampler.wake()
    assert sampler.sample(make_requests(PARAMS, prompts=1))
