"""TQC's networks (Kuznetsov et al., arXiv:2005.04269): soft actor-critic's actor, critics of distributions."""

from __future__ import annotations

from rlinf.models.off_policy.soft_actor_critic import SoftActorCritic


class QuantileActorCritic(SoftActorCritic):
    """An `interfaces.ActingPolicy` whose :meth:`judge` gives quantiles of the return, [critics, N, quantiles]."""

    loss_type = "tqc"
    gives_quantiles = True
