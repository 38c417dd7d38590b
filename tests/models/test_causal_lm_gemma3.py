"""gemma-3-270m where ``make models/gemma3`` has put it: windows, a vocabulary of 262,144 tokens, ``<bos>``."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rlinf.data.inputs import TextInputs
from rlinf.data.messages import SampleRequest, SamplingParams
from rlinf.models.causal_lm import CausalLMPolicy
from rlinf.models.loading import load_causal_lm, load_tokenizer
from rlinf.samplers.hf import HFSampler

FOLDER = Path(__file__).parents[2] / "models" / "gemma3"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="models/gemma3 is missing: make models/gemma3"),
]
QUESTION = "Question: What is 2 + 7?\nAnswer:"
LONG = "Tom counts apples: " + ", ".join(str(number) for number in range(1, 260)) + ".\n" + QUESTION
"""More tokens than the 512 that its layers with a window attend to."""


def test_sampled_and_evaluated_tokens_have_the_models_own_log_probabilities() -> None:
    """Sampling, packed and padded evaluation, and transformers' forward pass of each row alone."""
    tokenizer = load_tokenizer(str(FOLDER))
    prompts = [tuple(tokenizer.encode(text)) for text in (QUESTION, LONG)]
    assert [prompt[0] for prompt in prompts] == [tokenizer.bos_token_id] * 2
    assert len(prompts[0]) < 512 < len(prompts[1])
    model = load_causal_lm(str(FOLDER))
    sampling = SamplingParams(max_new_tokens=12, temperature=1.0)
    requests = [SampleRequest(number, prompt, 2, sampling, (0, number)) for number, prompt in enumerate(prompts)]
    sampler = HFSampler(
        load_causal_lm(str(FOLDER)),
        eos_token_ids=[tokenizer.eos_token_id],
        pad_token_id=tokenizer.pad_token_id,
        seed=0,
        generation_batch_size=4,
        max_model_len=1400,
    )
    done = list(sampler.sample(requests))
    rows = [(prompts[one.request_id], one) for one in done]
    lengths = torch.tensor([len(prompt) for prompt, _ in rows])
    responses = torch.tensor([len(one.token_ids) for _, one in rows])
    pad = torch.nn.utils.rnn.pad_sequence
    inputs = TextInputs(pad([torch.tensor(prompt) for prompt, _ in rows], batch_first=True), lengths, responses)
    actions = pad([torch.tensor(one.token_ids) for _, one in rows], batch_first=True)
    mask = torch.arange(actions.shape[1]) < responses[:, None]
    own = []
    with torch.no_grad():
        for prompt, one in rows:
            logits = model(torch.tensor([[*prompt, *one.token_ids]])).logits[0, len(prompt) - 1 : -1].float()
            own.append(logits.log_softmax(-1).gather(1, torch.tensor(one.token_ids)[:, None])[:, 0])
    with torch.no_grad():
        for packs in (False, True):
            policy = CausalLMPolicy(load_causal_lm(str(FOLDER)), sampling=sampling, pack_rows=packs)
            found = policy.evaluate(inputs, actions, mask).logprobs
            for row, (expected, (_, one)) in enumerate(zip(own, rows, strict=True)):
                torch.testing.assert_close(found[row, : len(expected)], expected, atol=1e-5, rtol=1e-5)
                torch.testing.assert_close(torch.tensor(one.logprobs), expected, atol=1e-4, rtol=0)
