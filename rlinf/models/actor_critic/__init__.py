"""Actor-critic policies for gymnasium spaces.

Both classes are loaded on first use: `spaces` is read by environment processes too, which may have no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlinf.models.actor_critic.options import ActorCriticOptions
    from rlinf.models.actor_critic.policy import ActorCritic

__all__ = ["ActorCritic", "ActorCriticOptions"]
_HOMES = {"ActorCritic": "policy", "ActorCriticOptions": "options"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"rlinf.models.actor_critic.{_HOMES[name]}"), name)
