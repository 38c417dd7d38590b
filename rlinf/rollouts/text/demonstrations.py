"""The warm start of language models: imitation of the conversations that the environment demonstrates."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Protocol

from rlinf.config.schema import Config
from rlinf.rollouts.text.demonstrated import Demonstration, shown
from rlinf.rollouts.text.prompts import PromptRenderer
from rlinf.rollouts.text.rows import Row, imitation_batch
from rlinf.streams import numpy_generator
from rlinf.types import Batch

_NOTE_CHARS = 160
"""Of a prompt or a response in a note."""


class Demonstrators(Protocol):
    """Text environments that can demonstrate."""

    def demonstrations(self, split: str, task_ids: Sequence[int]) -> list[Demonstration]:
        """A correct conversation about each task."""


class TextDemonstrations:
    """Draws supervised batches from the demonstrations of the first training tasks."""

    def __init__(self, envs: Demonstrators, renderer: PromptRenderer, num_tasks: int, config: Config) -> None:
        self._envs, self._renderer, self._config = envs, renderer, config
        self._pool = min(num_tasks, config.sft.max_tasks or num_tasks)

    def notes(self) -> Mapping[str, int | str]:
        """What the warm start imitates, by an example: the environment may have made it of a bare answer."""
        if not self._config.sft.steps or self._config.sft.data is not None:
            return {}
        (one,) = self._envs.demonstrations("train", [0])
        short = [textwrap.shorten(text, _NOTE_CHARS, placeholder=" ...") for text in (one.prompt, shown(one))]
        return {"sft imitates, for example": " -> ".join(short)}

    def batch(self, step: int) -> Batch:
        """The supervised batch of warm-start step ``step``: correct responses with advantage 1."""
        config, tokenizer = self._config, self._renderer.tokenizer
        generator = numpy_generator(config.run.seed, "sft", step)
        picked = generator.integers(self._pool, size=config.sft.batch_size).tolist()
        rows = []
        for place, one in enumerate(self._envs.demonstrations("train", picked)):
            tokens, mask = self._encoded(one)
            texts, prompt_ids = (one.prompt, one.responses[-1]), self._renderer.prompt(one.prompt)
            rows.append(Row.imitated(place, picked[place], texts, prompt_ids=prompt_ids, tokens=tokens, mask=mask))
        return imitation_batch(rows, pad_token_id=tokenizer.pad_token_id)

    def _encoded(self, one: Demonstration) -> tuple[list[int], list[bool]]:
        """Everything after the prompt, as a rollout would have it, and what of it is imitated."""
        tokenizer = self._renderer.tokenizer
        tokens: list[int] = []
        mask: list[bool] = []
        for place, response in enumerate(one.responses):
            said = [*tokenizer.encode(response, add_special_tokens=False), tokenizer.eos_token_id]
            tokens += said
            mask += [True] * len(said)
            if place < len(one.observations):
                added = self._renderer.continuation(*one.observations[place], after=said[-1], said=response)
                tokens += added
                mask += [False] * len(added)
        return tokens, mask
