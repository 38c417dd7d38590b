"""The warm start of language models: imitation of the responses that the environment demonstrates."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Protocol

from rlinf.config.schema import Config
from rlinf.rollouts.text.prompts import PromptRenderer
from rlinf.rollouts.text.rows import Row, imitation_batch
from rlinf.streams import numpy_generator
from rlinf.types import Batch

_NOTE_CHARS = 160
"""Of a prompt or a response in a note."""


class Demonstrators(Protocol):
    """Text environments that can demonstrate."""

    def demonstrations(self, split: str, task_ids: Sequence[int]) -> list[tuple[str, str]]:
        """(prompt, correct response) of each task."""


class TextDemonstrations:
    """Draws supervised batches from the demonstrations of the first training tasks."""

    def __init__(self, envs: Demonstrators, renderer: PromptRenderer, num_tasks: int, config: Config) -> None:
        self._envs, self._renderer, self._config = envs, renderer, config
        self._pool = min(num_tasks, config.sft.max_tasks or num_tasks)

    def notes(self) -> Mapping[str, int | str]:
        """What the warm start imitates, by an example: the environment may have made it of a bare answer."""
        if not self._config.sft.steps or self._config.sft.data is not None:
            return {}
        ((prompt, response),) = self._envs.demonstrations("train", [0])
        shown = [textwrap.shorten(text, _NOTE_CHARS, placeholder=" ...") for text in (prompt, response)]
        return {"sft imitates, for example": " -> ".join(shown)}

    def batch(self, step: int) -> Batch:
        """The supervised batch of warm-start step ``step``: correct responses with advantage 1."""
        config, tokenizer = self._config, self._renderer.tokenizer
        generator = numpy_generator(config.run.seed, "sft", step)
        picked = generator.integers(self._pool, size=config.sft.batch_size).tolist()
        rows = []
        for place, (prompt, response) in enumerate(self._envs.demonstrations("train", picked)):
            tokens = [*tokenizer.encode(response, add_special_tokens=False), tokenizer.eos_token_id]
            prompt_ids = self._renderer.prompt(prompt)
            mask = [True] * len(tokens)
            rows.append(
                Row.imitated(place, picked[place], (prompt, response), prompt_ids=prompt_ids, tokens=tokens, mask=mask)
            )
        return imitation_batch(rows, pad_token_id=tokenizer.pad_token_id)
