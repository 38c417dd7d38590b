"""The real pretrained model, where ``make models/smollm2`` has put it, and rows of text that it answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rlinf.data.inputs import TextInputs

FOLDER = Path(__file__).parents[2] / "models" / "smollm2"
TEXTS = (
    ("Tom has 4 apples. Anna gives him 3 more. How many apples does Tom have now?", "Tom has 7 apples now."),
    ("Tom has 4 apples. Anna gives him 3 more. How many apples does Tom have now?", "4 + 3 = 7, so he has \\boxed{7}."),
    ("What is the capital of France?", "The capital of France is Paris."),
    ("What is 12 times 3?", "12 times 3 is 36."),
)
"""Prompts and responses; the first two rows share their prompt."""

needs_model = pytest.mark.skipif(
    not (FOLDER / "model.safetensors").exists(), reason="models/smollm2 is missing: make models/smollm2"
)


def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(FOLDER)


def prompt_of(text: str) -> list[int]:
    """Token ids of a prompt with the chat template applied."""
    message = [{"role": "user", "content": text}]
    encoded = tokenizer().apply_chat_template(message, add_generation_prompt=True, tokenize=True, return_dict=True)
    ids: list[int] = encoded["input_ids"]
    return ids


def rows() -> tuple[TextInputs, Tensor, Tensor]:
    """Inputs, actions [4, T] and mask [4, T] of :data:`TEXTS`, each response with its end token."""
    prompts = [torch.tensor(prompt_of(question)) for question, _ in TEXTS]
    ends = tokenizer()
    answers = [torch.tensor([*ends.encode(answer), ends.eos_token_id]) for _, answer in TEXTS]
    lengths, responses = (torch.tensor([len(row) for row in one]) for one in (prompts, answers))
    padded = [torch.nn.utils.rnn.pad_sequence(one, batch_first=True) for one in (prompts, answers)]
    mask = torch.arange(padded[1].shape[1]) < responses[:, None]
    return TextInputs(padded[0], lengths, responses), padded[1], mask
