"""Which rollout makes the conversations of a run."""

from __future__ import annotations

import functools
from collections.abc import Callable

from rlinf.config import Config
from rlinf.config.facts import is_agent
from rlinf.rollouts.text.rollout import TextRollout


def conversation_rollout(config: Config, address: str) -> Callable[..., TextRollout]:
    """For environments that the policy talks to, or for agents, who call the policy at ``address``."""
    if is_agent(config.env.id):
        from rlinf.rollouts.agents.rollout import AgentRollout

        return functools.partial(AgentRollout, address=address)
    return TextRollout
