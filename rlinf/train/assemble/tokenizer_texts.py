"""Texts to train a tokenizer on, if the policy brings none."""

from __future__ import annotations

from collections.abc import Iterator

from rlinf.config import Config
from rlinf.data.pictures import replaced
from rlinf.datasets.conversation_files import read_answers
from rlinf.models.tokenizer import MAX_TOKEN_BYTES
from rlinf.rollouts.text.conversation import TextEnvs

_ENOUGH = 2000
"""Conversations, or tasks: enough to meet every word of a template."""


def file_texts(config: Config) -> Iterator[str]:
    """Messages of the first conversations of ``sft.data``."""
    for row in read_answers(str(config.sft.data), pairs=config.sft.loss == "dpo")[:_ENOUGH]:
        yield from (replaced(message.content, "") for conversation in row for message in conversation.messages)


def tokenizer_texts(config: Config, envs: TextEnvs, num_tasks: int) -> Iterator[str]:
    """Messages of ``sft.data``, or else prompts and demonstrations of the environment's first tasks.

    Prompts that no tokenizer makes ``data.max_prompt_length`` tokens of are left out, as training leaves them out.
    """
    if config.sft.data is not None:
        yield from file_texts(config)
        return
    for texts in envs.texts("train", range(min(_ENOUGH, num_tasks))):
        if len(texts[0].encode()) <= config.data.max_prompt_length * MAX_TOKEN_BYTES:
            yield from texts
