"""A tokenizer of characters."""

from __future__ import annotations

EOS, PAD = 1, 0


class Letters:
    """Token ids are character codes; 0 and 1 are special."""

    chat_template = None
    pad_token_id = PAD

    def __len__(self) -> int:
        return 128

    def decode(self, tokens: list[int], *, skip_special_tokens: bool) -> str:
        return "".join(chr(token) for token in tokens if token > 1)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [ord(letter) for letter in text]
