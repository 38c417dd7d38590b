"""From what an environment says to tokens: chat templates where the tokenizer has one, plain text otherwise."""

from __future__ import annotations

from typing import Any


class PromptRenderer:
    """Turns observations into token ids, once per distinct text."""

    def __init__(self, tokenizer: Any, *, chat_template: str = "auto", system_prompt: str | None = None) -> None:
        """``chat_template``: auto, always or never. Raises ValueError where it is ``always`` and there is none."""
        has_template = getattr(tokenizer, "chat_template", None) is not None
        if chat_template == "always" and not has_template:
            raise ValueError("data.chat_template is always, and the tokenizer has no chat template")
        self.tokenizer = tokenizer
        self.chat = has_template and chat_template != "never"
        self.system_prompt = system_prompt
        self._cache: dict[str, tuple[int, ...]] = {}

    def prompt(self, observation: str) -> tuple[int, ...]:
        """Token ids of a conversation's first prompt."""
        if observation not in self._cache:
            self._cache[observation] = self._encode(self._opening(observation))
        return self._cache[observation]

    def continuation(self, observation: str) -> tuple[int, ...]:
        """Token ids of what the environment says in between, up to where the policy speaks again."""
        if not self.chat:
            return self._encode(f"\n{observation}\n")
        marker = "\u0000"
        messages = [{"role": "assistant", "content": marker}, {"role": "user", "content": observation}]
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return self._encode(text.split(marker, 1)[1])

    def text(self, tokens: tuple[int, ...] | list[int]) -> str:
        """A response's text, without special tokens."""
        return self.tokenizer.decode(list(tokens), skip_special_tokens=True)

    def _opening(self, observation: str) -> str:
        if not self.chat:
            return observation if self.system_prompt is None else f"{self.system_prompt}\n\n{observation}"
        system = [] if self.system_prompt is None else [{"role": "system", "content": self.system_prompt}]
        return self.tokenizer.apply_chat_template(
            [*system, {"role": "user", "content": observation}], tokenize=False, add_generation_prompt=True
        )

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))
