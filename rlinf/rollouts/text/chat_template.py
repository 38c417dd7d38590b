"""Chat templates as runs apply them: with the variables of `data.chat_template_kwargs`, and always on the same day."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

_DAY = datetime.date(2025, 1, 1)
"""The day that templates which name it (gpt-oss, Llama 3.2) get: a run that goes on tomorrow keeps its prompts."""


def rendered(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    *,
    prompt: bool,
    variables: Mapping[str, Any],
    tools: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The conversation as the tokenizer's template writes it; with ``prompt`` up to where the policy speaks.

    Raises whatever the template raises, which is a program of its author's.
    """
    given = {"strftime_now": _DAY.strftime, **variables, **({"tools": list(tools)} if tools else {})}
    return str(tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=prompt, **given))
