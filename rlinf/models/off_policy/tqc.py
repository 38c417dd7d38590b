"""TQC's networks (Kuznetsov et al., arXiv:2005.04269): soft actor-critic's actor, critics of distributions."""

from __future__ import annotations

from torch import nn

from rlinf.models.off_policy.layers import QuantileCritics
from rlinf.models.off_policy.soft_actor_critic import SoftActorCritic


class QuantileActorCritic(SoftActorCritic):
    """An `interfaces.ActingPolicy` whose :meth:`judge` gives quantiles of the return, [critics, N, quantiles]."""

    loss_type = "tqc"

    def make_critic(self, inputs: int) -> nn.Module:
        options = self.options
        return QuantileCritics(
            inputs,
            options.hidden_sizes,
            options.activation,
            options.num_quantiles,
            count=options.num_critics,
            layer_norm=options.critic_layer_norm,
        )
