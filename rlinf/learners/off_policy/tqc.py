"""TQC (Kuznetsov et al., arXiv:2005.04269): soft actor-critic with truncated mixtures of distributions of the return.

The quantiles of all target critics form one mixture. Its largest ones, `algorithm.dropped_quantiles` for each critic,
are left out, which keeps the critics from overestimating.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlinf.learners.off_policy.quantiles import quantile_huber_loss
from rlinf.learners.off_policy.replay_buffer import Transitions
from rlinf.learners.off_policy.sac import SacObjective


class TqcObjective(SacObjective):
    """Critics regress on what is left of the mixture; the actor maximises the mean of all quantiles."""

    def judged_and_wanted(self, sampled: Transitions, noise: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Return the critics' quantiles [critics, M, Q], and the kept quantiles [M, K] of the soft return."""
        assert self.target is not None
        with torch.no_grad():
            actions, logprobs = self.policy.draw(sampled.next_inputs, noise)
            encoder, critic = self.target.modules
            following = critic(encoder(sampled.next_inputs), torch.tanh(actions))
            count, rows, quantiles = following.shape
            mixture = following.transpose(0, 1).reshape(rows, count * quantiles).sort(dim=1).values
            kept = mixture[:, : count * (quantiles - self.algorithm.dropped_quantiles)]
            soft = kept - (alpha * logprobs)[:, None]
            wanted = sampled.rewards[:, None] + sampled.discounts[:, None] * soft
        return self.policy.judge(sampled.inputs, sampled.actions), wanted

    def regression(self, judged: Tensor, wanted: Tensor, sampled: Transitions) -> Tensor:
        """Compute the quantile Huber loss of [critics, M, Q] against [M, K], summed over the critics."""
        losses = quantile_huber_loss(judged, wanted.expand(len(judged), *wanted.shape))
        return (losses if sampled.weights is None else losses * sampled.weights).mean(1).sum()

    def errors(self, judged: Tensor, wanted: Tensor) -> Tensor:
        """[M]: the distance between the means of both distributions, averaged over the critics."""
        return (judged.detach().mean(2) - wanted.mean(1)).abs().mean(0)

    def combined(self, judged: Tensor) -> Tensor:
        return judged.mean(dim=(0, 2))
