"""Runs in the process of a reward model."""

from __future__ import annotations

import functools
from typing import Any


@functools.lru_cache(maxsize=1)
def _loaded(path: str, threads: int) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.set_num_threads(threads)
    model = AutoModelForSequenceClassification.from_pretrained(
        path, torch_dtype=torch.float32, trust_remote_code=False
    ).eval()
    return model, AutoTokenizer.from_pretrained(path, truncation_side="left", trust_remote_code=False)


def score(path: str, prompt: str, response: str, label: int, probability: bool, max_tokens: int, threads: int) -> float:
    """Compute the output ``label`` of the classifier at ``path`` for a question and a response."""
    import torch

    model, tokenizer = _loaded(path, threads)
    if getattr(tokenizer, "chat_template", None):
        chat = [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]
        text = tokenizer.apply_chat_template(chat, tokenize=False)
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt", truncation=True, max_length=max_tokens)
    else:
        ids = tokenizer(f"{prompt}\n{response}", return_tensors="pt", truncation=True, max_length=max_tokens)
    with torch.no_grad():
        logits = model(**ids).logits[0]
    if not 0 <= label < logits.numel():
        raise ValueError(f"reward.reward_model.label: {path} has {logits.numel()} outputs, and no number {label}")
    if probability:
        logits = logits.sigmoid() if logits.numel() == 1 else logits.softmax(0)
    return float(logits[label])
