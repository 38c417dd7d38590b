"""How long a row of text may become."""

from __future__ import annotations

from rlinf.config.schema import Config


def conversation_tokens(config: Config) -> int:
    """The most tokens after the first prompt: one response, or all turns with what the environment says in between.

    Unless `rollout.max_conversation_tokens` says otherwise there is room for a whole response in every turn, and for an
    answer of the environment between two of them that is as long as a prompt may be.
    """
    limit, turns = config.rollout.max_conversation_tokens, config.env.max_turns
    room = turns * config.rollout.max_new_tokens + (turns - 1) * config.data.max_prompt_length
    return room if limit is None else limit
