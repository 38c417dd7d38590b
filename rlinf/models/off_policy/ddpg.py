"""DDPG's networks (Lillicrap et al., arXiv:1509.02971): a deterministic actor and one critic of state and action."""

from __future__ import annotations

from rlinf.models.off_policy.deterministic import DeterministicActorCritic


class DdpgActorCritic(DeterministicActorCritic):
    """An `interfaces.ActingPolicy` with TD3's actor, judged by a single critic."""

    loss_type = "ddpg"
    single_critic = True
