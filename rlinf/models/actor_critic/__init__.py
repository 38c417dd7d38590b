"""Actor-critic policies for gymnasium spaces.

The policy is loaded when it is asked for: `spaces` is read by environment processes too, which may have no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rlinf.models.actor_critic.options import ActorCriticOptions

if TYPE_CHECKING:
    from rlinf.models.actor_critic.policy import ActorCritic

__all__ = ["ActorCritic", "ActorCriticOptions"]


def __getattr__(name: str) -> Any:
    if name != "ActorCritic":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("rlinf.models.actor_critic.policy").ActorCritic
