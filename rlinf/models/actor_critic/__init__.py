"""Actor-critic policies for gymnasium spaces."""

from rlinf.models.actor_critic.options import ActorCriticOptions
from rlinf.models.actor_critic.policy import ActorCritic

__all__ = ["ActorCritic", "ActorCriticOptions"]
