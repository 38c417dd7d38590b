"""Log-probabilities of a causal language model: packed or padded, alone or together, on every architecture."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from language_models import VOCABULARY, conversation, tiny

from rlinf.data.messages import SamplingParams
from rlinf.models import packed_attention, token_scores
from rlinf.models.architecture import random_causal_lm
from rlinf.models.causal_lm import CausalLMPolicy
from rlinf.models.loading import PolicyError, add_lora, load_causal_lm
from rlinf.models.packing import pack

SAMPLING = SamplingParams(max_new_tokens=9, temperature=0.7)


def both(model: Any, sampling: SamplingParams = SAMPLING) -> tuple[CausalLMPolicy, CausalLMPolicy]:
    packed = CausalLMPolicy(copy.deepcopy(model), sampling=sampling)
    padded = CausalLMPolicy(copy.deepcopy(model), sampling=sampling, pack_rows=False)
    return packed, padded


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3", "llama", "mistral"])
def test_packed_rows_give_what_padded_rows_give(model_type: str) -> None:
    inputs, actions, mask = conversation()
    packed, padded = both(tiny(model_type))
    one, other = packed.evaluate(inputs, actions, mask), padded.evaluate(inputs, actions, mask)
    torch.testing.assert_close(one.logprobs, other.logprobs, atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(one.entropy, other.entropy, atol=2e-6, rtol=1e-5)
    (one.logprobs**2).sum().backward()
    (other.logprobs**2).sum().backward()
    for left, right in zip(packed.parameters(), padded.parameters(), strict=True):
        torch.testing.assert_close(left.grad, right.grad, atol=2e-5, rtol=1e-4)


def wide(model_type: str, **options: Any) -> Any:
    """A small model whose attention is far from uniform, with attention that leaves nothing out."""
    model = tiny(model_type, **options)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.set_attn_implementation("eager")
    return model


def require_the_models_own(model: Any, logprobs: torch.Tensor) -> None:
    """Compare with what the model's own forward pass gives for each row of :data:`UNEVEN` alone."""
    inputs, actions, mask = conversation(UNEVEN)
    for row, (prompt, response) in enumerate(zip(inputs.prompt_lengths, inputs.response_lengths, strict=True)):
        tokens = torch.cat([inputs.prompt_ids[row, :prompt], actions[row, :response]])
        with torch.no_grad():
            logits = model(tokens[None]).logits[0, prompt - 1 : -1].float() / SAMPLING.temperature
        wanted = logits.log_softmax(-1).gather(1, actions[row, :response, None])[:, 0]
        torch.testing.assert_close(
            logprobs[row, :response].detach(), wanted * mask[row, :response], atol=1e-5, rtol=1e-5
        )


UNEVEN = (12, 1, 40, 0, 21, 37)
FAMILIES: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": 5},
    "gemma3_text": {"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]},
    "gemma2": {"sliding_window": 6, "attn_logit_softcapping": 0.05, "final_logit_softcapping": 2.0},
    "cohere2": {"logit_scale": 0.25},
    "granite": {"logits_scaling": 3.0},
}
"""Windows shorter than rows, caps that scores and logits of these weights reach, logits with a scale."""


@pytest.mark.parametrize("model_type", FAMILIES)
def test_windows_caps_and_scales_hold_in_packed_rows(model_type: str) -> None:
    """Packed, padded and the model's own forward pass agree, and give the same gradient."""
    inputs, actions, mask = conversation(UNEVEN)
    model = wide(model_type, **FAMILIES[model_type])
    packed, padded = both(model)
    one, other = packed.evaluate(inputs, actions, mask), padded.evaluate(inputs, actions, mask)
    require_the_models_own(model, one.logprobs)
    require_the_models_own(model, other.logprobs)
    (one.logprobs**2).sum().backward()
    (other.logprobs**2).sum().backward()
    for left, right in zip(packed.parameters(), padded.parameters(), strict=True):
        torch.testing.assert_close(left.grad, right.grad, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("model_type", ["bloom", "mpt", "stablelm", pytest.param("falcon_h1", marks=pytest.mark.slow)])
def test_attention_of_their_own_is_refused_when_packed_and_right_when_padded(model_type: str) -> None:
    """Biases by distance, state-space layers: rows of one sequence would read each other."""
    model = wide(model_type)
    with pytest.raises(PolicyError, match=f"layers of {model_type} read across packed rows. Set learner.pack: false"):
        CausalLMPolicy(copy.deepcopy(model), sampling=SAMPLING)
    padded = CausalLMPolicy(copy.deepcopy(model), sampling=SAMPLING, pack_rows=False)
    require_the_models_own(model, padded.evaluate(*conversation(UNEVEN)).logprobs)


@pytest.mark.parametrize("model_type", ["nemotron", "gpt_oss"])
def test_attention_that_packing_does_not_reach_is_refused_in_the_first_pass(model_type: str) -> None:
    policy = CausalLMPolicy(tiny(model_type), sampling=SAMPLING)
    with pytest.raises(PolicyError, match="does more than packed rows allow"):
        policy.evaluate(*conversation())


def test_a_soft_cap_of_scores_is_never_left_out(tmp_path: Path) -> None:
    """transformers' sdpa ignores it: a model that has one is made and loaded with the attention that applies it."""
    model = wide("gemma2", attn_logit_softcapping=0.05)
    model.save_pretrained(tmp_path)
    without = wide("gemma2", attn_logit_softcapping=None)
    without.load_state_dict(model.state_dict())
    tokens = torch.arange(2, 22)[None]
    loaded = load_causal_lm(str(tmp_path))
    model.set_attn_implementation("eager")
    torch.testing.assert_close(loaded(tokens).logits, model(tokens).logits)
    assert (loaded(tokens).logits - without(tokens).logits).abs().max() > 0.01
    assert random_causal_lm(model.config).config._attn_implementation == "eager"
    assert random_causal_lm(tiny("mistral").config).config._attn_implementation == "sdpa"


def test_responses_of_all_lengths_give_what_padded_rows_give() -> None:
    """Responses so uneven that they are laid out in several blocks."""
    inputs, actions, mask = conversation((12, 1, 40, 0, 21, 37))
    assert len(pack(inputs.prompt_ids, inputs.prompt_lengths, actions, inputs.response_lengths).blocks) == 3
    packed, padded = both(tiny())
    one, other = packed.evaluate(inputs, actions, mask), padded.evaluate(inputs, actions, mask, with_entropy=False)
    assert other.entropy is None
    torch.testing.assert_close(one.logprobs, other.logprobs, atol=2e-6, rtol=1e-5)
    (one.logprobs**2).sum().backward()
    (other.logprobs**2).sum().backward()
    for left, right in zip(packed.parameters(), padded.parameters(), strict=True):
        torch.testing.assert_close(left.grad, right.grad, atol=2e-5, rtol=1e-4)


def test_attention_of_a_cpu_is_in_32_bits_where_the_rest_is_in_16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fused kernel is three times as fast there. Autocast alone would hand it 16 bits, whatever it is given."""
    results = []

    def recorded(*tensors: torch.Tensor, **options: Any) -> torch.Tensor:
        results.append(torch.nn.functional.scaled_dot_product_attention(*tensors, **options))
        return results[-1]

    monkeypatch.setattr(packed_attention, "scaled_dot_product_attention", recorded)
    policy = CausalLMPolicy(tiny(), sampling=SAMPLING, autocast=torch.bfloat16)
    policy.evaluate(*conversation())
    assert {result.dtype for result in results} == {torch.float32}


def test_log_probabilities_are_those_of_a_plain_forward_pass() -> None:
    inputs, actions, mask = conversation()
    model = tiny()
    logprobs = CausalLMPolicy(copy.deepcopy(model), sampling=SAMPLING).evaluate(inputs, actions, mask).logprobs
    for row in range(6):
        prompt = inputs.prompt_ids[row, : inputs.prompt_lengths[row]]
        response = actions[row, : inputs.response_lengths[row]]
        with torch.no_grad():
            logits = model(torch.cat([prompt, response])[None]).logits[0] / SAMPLING.temperature
        for position, token in enumerate(response.tolist()):
            expected = logits[len(prompt) - 1 + position].log_softmax(-1)[token]
            assert logprobs[row, position].item() == pytest.approx(
                expected.item() if mask[row, position] else 0.0, abs=3e-6
            )


def test_a_row_gives_the_same_alone_and_among_others() -> None:
    inputs, actions, mask = conversation()
    policy = CausalLMPolicy(tiny(), sampling=SAMPLING)
    together = policy.evaluate(inputs, actions, mask).logprobs
    for row in range(6):
        alone = policy.evaluate(inputs.select(torch.tensor([row])), actions[row : row + 1], mask[row : row + 1])
        torch.testing.assert_close(alone.logprobs[0], together[row], atol=2e-6, rtol=1e-5)


def test_a_repetition_penalty_counts_prompt_and_response() -> None:
    inputs, actions, mask = conversation()
    sampling = SamplingParams(max_new_tokens=9, repetition_penalty=1.5)
    packed, padded = both(tiny(), sampling)
    logprobs = packed.evaluate(inputs, actions, mask).logprobs
    torch.testing.assert_close(logprobs, padded.evaluate(inputs, actions, mask).logprobs, atol=2e-6, rtol=1e-5)
    with torch.no_grad():
        context = torch.cat([inputs.prompt_ids[0], actions[0, :2]])
        logits = padded.model(context[None]).logits[0, -1]
    seen = context.unique()
    logits[seen] = torch.where(logits[seen] > 0, logits[seen] / 1.5, logits[seen] * 1.5)
    assert logprobs[0, 2].item() == pytest.approx(logits.log_softmax(-1)[actions[0, 2]].item(), abs=3e-6)


def test_values_come_from_the_state_that_predicts_the_position() -> None:
    inputs, actions, mask = conversation()
    policy = CausalLMPolicy(tiny(), sampling=SAMPLING, value_head=True)
    assert policy.value_head is not None
    torch.nn.init.normal_(policy.value_head.weight)
    values = policy.evaluate(inputs, actions, mask).values
    assert values is not None
    hidden = policy.model.base_model
    policy.model.set_attn_implementation("sdpa")
    with torch.no_grad():
        state = hidden(inputs.prompt_ids[:1]).last_hidden_state[0, -1]
        expected = policy.value_head(state)
    assert values[0, 0].item() == pytest.approx(expected.item(), abs=1e-5)


def test_logits_in_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, actions, mask = conversation()
    policy = CausalLMPolicy(tiny(), sampling=SAMPLING)
    whole = policy.evaluate(inputs, actions, mask)
    whole.logprobs.sum().backward()
    gradient = next(policy.parameters()).grad.clone()
    policy.zero_grad()
    monkeypatch.setitem(token_scores._CHUNK_ELEMENTS, "cpu", 4 * VOCABULARY)
    pieces = policy.evaluate(inputs, actions, mask)
    pieces.logprobs.sum().backward()
    torch.testing.assert_close(pieces.logprobs, whole.logprobs)
    torch.testing.assert_close(next(policy.parameters()).grad, gradient, atol=1e-6, rtol=1e-5)


def test_an_empty_prompt_is_refused() -> None:
    inputs, actions, mask = conversation()
    inputs = replace(inputs, prompt_lengths=torch.tensor([0, 3, 3, 5, 2, 3]))
    with pytest.raises(ValueError, match="prompt of at least one token"):
        CausalLMPolicy(tiny(), sampling=SAMPLING).evaluate(inputs, actions, mask)


class TestLora:
    @staticmethod
    def policy() -> CausalLMPolicy:
        pytest.importorskip("peft")
        model = add_lora(tiny(), rank=4, alpha=8, dropout=0.0, target_modules=["q_proj", "v_proj"], seed=0)
        policy = CausalLMPolicy(model, sampling=SAMPLING)
        for name, parameter in policy.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.5)
        return policy

    def test_the_reference_has_the_adapters_that_were_copied(self) -> None:
        inputs, actions, mask = conversation()
        policy = self.policy()
        before = policy.evaluate(inputs, actions, mask).logprobs
        copied = policy.copied_adapters()
        assert not any(adapter.requires_grad for adapter in copied)
        for name, parameter in policy.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.5)
        after = policy.evaluate(inputs, actions, mask).logprobs
        with policy.reference(copied):
            assert torch.equal(policy.evaluate(inputs, actions, mask).logprobs, before)
        assert torch.equal(policy.evaluate(inputs, actions, mask).logprobs, after)
        assert (after - before).abs().max() > 0.01

    def test_new_adapters_leave_the_base_as_it_is(self) -> None:
        inputs, actions, mask = conversation()
        model = add_lora(tiny(), rank=4, alpha=8, dropout=0.0, target_modules=["q_proj", "v_proj"], seed=0)
        adapted = CausalLMPolicy(model, sampling=SAMPLING).evaluate(inputs, actions, mask).logprobs
        assert torch.equal(adapted, CausalLMPolicy(tiny(), sampling=SAMPLING).evaluate(inputs, actions, mask).logprobs)

    def test_a_layer_that_is_not_there_is_named(self) -> None:
        with pytest.raises(PolicyError, match="the model has no qproj"):
            add_lora(tiny(), rank=4, alpha=8, dropout=0.0, target_modules=["qproj", "v_proj"], seed=0)

    def test_reading_the_weights_leaves_the_base_as_it_is(self) -> None:
        """Adding adapters and taking them out again would round the base after each step."""
        policy = self.policy()
        before = {name: tensor.clone() for name, tensor in policy.model.named_parameters()}
        for _ in range(3):
            dict(policy.weights())
        assert all(torch.equal(before[name], tensor) for name, tensor in policy.model.named_parameters())

    def test_exported_weights_are_merged_under_plain_names(self) -> None:
        inputs, actions, mask = conversation()
        policy = self.policy()
        exported = {name: tensor.clone() for name, tensor in policy.weights()}
        plain = tiny()
        assert set(exported) == {name for name, _ in plain.named_parameters()}
        plain.load_state_dict(exported, strict=False)
        merged = CausalLMPolicy(plain, sampling=SAMPLING).evaluate(inputs, actions, mask).logprobs
        torch.testing.assert_close(merged, policy.evaluate(inputs, actions, mask).logprobs, atol=1e-5, rtol=1e-4)


def test_the_exported_folder_loads_as_a_causal_language_model(tmp_path: Any) -> None:
    from transformers import AutoModelForCausalLM

    policy = CausalLMPolicy(tiny(), sampling=SAMPLING)
    policy.save_pretrained(str(tmp_path))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    for (name, saved), (_, again) in zip(policy.model.named_parameters(), loaded.named_parameters(), strict=True):
        assert torch.equal(saved, again), name


def test_saving_and_loading_show_no_progress_bars(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A run shows its own progress; the bars of transformers come back for other users of the process."""
    from transformers.utils import logging

    CausalLMPolicy(tiny("qwen2"), sampling=SAMPLING).save_pretrained(str(tmp_path))
    load_causal_lm(str(tmp_path))
    assert capfd.readouterr().err == ""
    list(logging.tqdm([1], desc="their own"))
    assert "their own" in capfd.readouterr().err
