"""A tiny random model and requests for it."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from rlinf.data.messages import SampleRequest, SamplingParams

VOCABULARY = 48
EOS, PAD = 1, 0


def tiny_qwen2(*, tied: bool = True, seed: int = 0, head_dim: int = 8, vocabulary: int = VOCABULARY) -> PreTrainedModel:
    """Qwen2 of 2 layers with grouped heads, its random weights enlarged until next-token choices differ clearly."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=4 * head_dim,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=tied,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )
    model = Qwen2ForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(8.0 if head_dim == 8 else 4.0)
    return model


def make_requests(params: SamplingParams, *, prompts: int = 6, n: int = 3) -> list[SampleRequest]:
    """Prompts of 1 to 12 tokens."""
    generator = torch.Generator().manual_seed(3)
    requests = []
    for index in range(prompts):
        length = 1 + (index * 5) % 12
        ids = torch.randint(2, VOCABULARY, (length,), generator=generator).tolist()
        requests.append(SampleRequest(request_id=index, prompt_ids=tuple(ids), n=n, params=params, key=(11, index)))
    return requests


@torch.no_grad()
def forward_logprobs(
    model: PreTrainedModel, prompt: tuple[int, ...], response: tuple[int, ...], temperature: float = 1.0
) -> torch.Tensor:
    """Log-probabilities [T] of ``response`` after ``prompt`` by one forward pass of the whole sequence."""
    ids = torch.tensor([prompt + response])
    logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float() / temperature
    return logits.log_softmax(-1).gather(-1, ids[0, len(prompt) :, None])[:, 0]


def seen_tokens(sequence: Tensor, start: int, length: int, vocabulary: int) -> Tensor:
    """Bool [length, V]: the tokens of ``sequence`` int64 [S] that come before positions ``start .. start + length``.

    Position ``start`` is the one that ``sequence[start]`` fills (for a response: the length of its prompt).
    """
    first = torch.full((vocabulary,), sequence.numel(), dtype=torch.int64, device=sequence.device)
    positions = torch.arange(sequence.numel(), device=sequence.device)
    first.scatter_reduce_(0, sequence, positions, reduce="amin")
    filled = torch.arange(start, start + length, device=sequence.device)
    return first[None, :] < filled[:, None]
