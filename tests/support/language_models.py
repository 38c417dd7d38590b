"""A small language model of any architecture, and rows for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlinf.data.inputs import TextInputs

VOCABULARY = 61


def tiny(model_type: str = "qwen2", **options: Any) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(
        model_type,
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
        tie_word_embeddings=model_type != "llama",
        eos_token_id=1,
        pad_token_id=0,
        **options,
    )
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


def conversation(tokens: tuple[int, ...] = (7, 1, 0, 4, 3, 6)) -> tuple[TextInputs, Tensor, Tensor]:
    """Six rows of three prompts: shared prompts, one empty response, an observation inside a row."""
    generator = torch.Generator().manual_seed(1)
    prompts = torch.randint(2, VOCABULARY, (3, 5), generator=generator)[torch.tensor([0, 1, 1, 0, 2, 1])]
    responses, positions = torch.tensor(tokens), max(tokens)
    actions = torch.randint(2, VOCABULARY, (6, positions), generator=generator)
    mask = torch.arange(positions) < responses[:, None]
    mask[0, 3] = False
    lengths = torch.tensor([5, 3, 3, 5, 2, 3])
    return TextInputs(prompts, lengths, responses), actions, mask
