"""A tokenizer's tokens against a model's embeddings."""

from __future__ import annotations

from typing import Any

from rlinf.base.errors import UserError


class VocabularyError(UserError):
    """Tokenizer and model do not belong together."""


def require_vocabulary(size: int, tokenizer: Any, *, model: str) -> None:
    """Raise VocabularyError if the tokenizer gives ids that a model of ``size`` embeddings does not have."""
    if len(tokenizer) > size:
        raise VocabularyError(
            f"the tokenizer has {len(tokenizer)} tokens, and {model} embeds {size} (vocab_size). Take the tokenizer "
            "that belongs to the model (policy.tokenizer.path: null), or a model with more embeddings."
        )
