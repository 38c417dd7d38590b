"""The messages of a conversation's first prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def first_messages(
    observation: str, *, system_prompt: str | None, instructions: Mapping[str, str], tools: str = "", chat: bool = True
) -> list[dict[str, Any]]:
    """Return the system prompt, and the observation with what it lacks behind it.

    Args:
        instructions: mark -> a sentence that is added if the mark does not stand in either.
        tools: words that describe tools; empty if there are none, or the chat template describes them.
        chat: whether there is a chat template; without one a single message has all words.

    >>> first_messages("2 + 2?", system_prompt="Be brief.", instructions={"####": "End with ####."}, chat=False)
    [{'role': 'user', 'content': 'Be brief.\\n\\n2 + 2?\\nEnd with ####.'}]
    """
    if tools:
        observation = f"{observation}\n\n{tools}"
    known = f"{system_prompt or ''}\n{observation}"
    if missing := [sentence for mark, sentence in instructions.items() if mark not in known]:
        observation = f"{observation}\n{' '.join(missing)}"
    if system_prompt is None:
        return [{"role": "user", "content": observation}]
    if not chat:
        return [{"role": "user", "content": f"{system_prompt}\n\n{observation}"}]
    return [{"role": "system", "content": system_prompt}, {"role": "user", "content": observation}]
