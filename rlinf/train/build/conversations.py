"""Which rollout makes the conversations of a run."""

from __future__ import annotations

from rlinf.config import Config
from rlinf.config.facts import is_agent
from rlinf.rollouts.text.rollout import TextRollout


def conversation_rollout(config: Config) -> type[TextRollout]:
    """For environments that the policy talks to, or for agents, who call the policy."""
    if is_agent(config.env.id):
        from rlinf.rollouts.agents.rollout import AgentRollout

        return AgentRollout
    return TextRollout
