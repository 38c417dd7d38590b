"""The real weights: policy, sampler and adapters agree with plain transformers on real text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from smollm2 import FOLDER, TEXTS, needs_model, prompt_of, rows
from torch import Tensor

from rlinf.data.messages import SampleRequest, SamplingParams
from rlinf.models.causal_lm import CausalLMPolicy
from rlinf.models.loading import add_lora, load_causal_lm
from rlinf.samplers.hf import HFSampler

pytestmark = [pytest.mark.slow, needs_model]
SAMPLING = SamplingParams(max_new_tokens=12)


def logprobs_of(model: Any, autocast: torch.dtype | None = None) -> Tensor:
    inputs, actions, mask = rows()
    with torch.no_grad():
        policy = CausalLMPolicy(model, sampling=SAMPLING, autocast=autocast)
        return policy.evaluate(inputs, actions, mask, with_entropy=False).logprobs[mask]


def test_packed_rows_have_the_logprobs_of_a_plain_forward_pass() -> None:
    """Float32 within 2e-4 of transformers; bfloat16 within 0.1 on average of float32."""
    plain, (inputs, actions, _) = load_causal_lm(str(FOLDER)), rows()
    expected = []
    with torch.no_grad():
        for row in range(len(TEXTS)):
            prompt = inputs.prompt_ids[row, : inputs.prompt_lengths[row]]
            response = actions[row, : inputs.response_lengths[row]]
            logits = plain(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1]
            expected.append(logits.log_softmax(-1).gather(-1, response[:, None])[:, 0])
    exact = logprobs_of(plain)
    torch.testing.assert_close(exact, torch.cat(expected), atol=2e-4, rtol=1e-4)
    gap = (logprobs_of(plain, torch.bfloat16) - exact).abs()
    assert float(gap.mean()) < 0.1


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-4), (torch.bfloat16, 0.1)])
def test_the_sampler_reports_the_logprobs_of_the_policy(dtype: torch.dtype, tolerance: float) -> None:
    """Mean gap of a token's log-probability, learner and sampler in the same precision."""
    sampler = HFSampler(
        load_causal_lm(str(FOLDER), dtype=dtype),
        eos_token_ids=[2],
        pad_token_id=2,
        seed=0,
        generation_batch_size=8,
        max_model_len=128,
    )
    prompt = prompt_of(TEXTS[0][0])
    made = sampler.sample([SampleRequest(request_id=0, prompt_ids=tuple(prompt), n=4, params=SAMPLING, key=(0,))])
    inputs, _, _ = rows()
    lengths = torch.tensor([len(one.token_ids) for one in made])
    actions = torch.nn.utils.rnn.pad_sequence([torch.tensor(one.token_ids) for one in made], batch_first=True)
    mask = torch.arange(actions.shape[1]) < lengths[:, None]
    given = type(inputs)(torch.tensor([prompt] * 4), torch.full((4,), len(prompt)), lengths)
    policy = CausalLMPolicy(
        load_causal_lm(str(FOLDER)), sampling=SAMPLING, autocast=None if dtype == torch.float32 else dtype
    )
    with torch.no_grad():
        computed = policy.evaluate(given, actions, mask, with_entropy=False).logprobs[mask]
    reported = torch.tensor([logprob for one in made for logprob in one.logprobs])
    assert float((computed - reported).abs().mean()) < tolerance


def test_an_adapter_opens_in_peft_and_merged_it_gives_the_same(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    adapted = add_lora(load_causal_lm(str(FOLDER)), rank=4, alpha=8, dropout=0.0, target_modules=["q_proj"], seed=0)
    torch.manual_seed(0)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.02)
    expected = logprobs_of(adapted)
    CausalLMPolicy(adapted, sampling=SAMPLING).save_pretrained(str(tmp_path))
    assert float((expected - logprobs_of(load_causal_lm(str(FOLDER)))).abs().max()) > 1e-3
    torch.testing.assert_close(logprobs_of(load_causal_lm(str(tmp_path))), expected, atol=1e-3, rtol=1e-3)
    opened = peft.PeftModel.from_pretrained(load_causal_lm(str(FOLDER)), str(tmp_path / "adapter"))
    torch.testing.assert_close(logprobs_of(opened.eval()), expected, atol=1e-4, rtol=1e-4)
