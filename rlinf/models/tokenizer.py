"""A small byte-level tokenizer trained on a task's own text, for models that start from nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

SPECIAL_TOKENS = ("<pad>", "<eos>")
MAX_TOKEN_BYTES = 128
_PIECE = 10_000


def train_tokenizer(
    texts: Iterable[str], *, vocab_size: int, split_digits: bool = True, split_words: bool = False
) -> Any:
    """Train a ``PreTrainedTokenizerFast`` that any text round-trips through (every byte is in its alphabet).

    Digits stand alone if ``split_digits``. Everything between them may merge across spaces, so that a constant
    template becomes few tokens. With ``split_words`` no token is longer than a word, and a new sentence is made
    of known tokens. The result depends on the texts alone. A text counts in pieces of :data:`_PIECE` characters:
    all of a text may lie between two digits, and merging in one long stretch takes the square of its length.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    steps: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if split_digits else []
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split_words))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        max_token_length=MAX_TOKEN_BYTES,
    )
    pieces = (text[start : start + _PIECE] for text in texts for start in range(0, len(text), _PIECE))
    tokenizer.train_from_iterator(pieces, trainer)
    pad, eos = SPECIAL_TOKENS
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=pad, eos_token=eos, clean_up_tokenization_spaces=False
    )
