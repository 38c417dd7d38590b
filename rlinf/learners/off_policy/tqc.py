"""TQC (Kuznetsov et al., arXiv:2005.04269): soft actor-critic with truncated mixtures of distributions of the return.

The quantiles of all target critics form one mixture. Its largest ones, `algorithm.dropped_quantiles` for each critic,
are left out, which keeps the critics from overestimating.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from rlinf.learners.off_policy.replay_buffer import Transitions
from rlinf.learners.off_policy.sac import SacObjective
from rlinf.models.off_policy.layers import quantile_fractions


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


def quantile_huber_loss(quantiles: Tensor, samples: Tensor) -> Tensor:
    """Compute the quantile Huber loss [...] of ``quantiles`` [..., Q] against ``samples`` [..., K] of the distribution.

    The mean over both of ``|tau_q - 1(u < 0)| huber(u)`` with ``u = sample - quantile`` and Huber's bound 1
    (Dabney et al., arXiv:1710.10044, equation 10, whose sum over quantiles is a mean here).

    One quantile, tau = 1/2, at 0, and samples 0.5 and -3: 0.5 (0.125 + 2.5) / 2

    >>> quantile_huber_loss(torch.tensor([0.0]), torch.tensor([0.5, -3.0]))
    tensor(0.6562)
    """
    errors = samples[..., None, :] - quantiles[..., :, None]
    huber = functional.huber_loss(errors, torch.zeros_like(errors), reduction="none")
    fractions = quantile_fractions(quantiles.shape[-1]).to(quantiles)[:, None]
    weights = (fractions - (errors.detach() < 0).to(errors)).abs()
    return (weights * huber).mean(dim=(-2, -1))
