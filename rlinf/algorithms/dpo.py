"""Direct preference optimisation (Rafailov et al., arXiv:2305.18290, equation 7) as policy-gradient advantages.

    loss = mean over pairs of -log sigmoid(margin),
    margin = beta ((log p_c - log ref_c) - (log p_r - log ref_r))

for the summed log-probabilities of the chosen and of the rejected answer. With ``imitation`` c, that much of
the chosen answer's cross-entropy per token is added (Pang et al., arXiv:2404.19733, equation 2): of pairs
that the policy would not have written, DPO alone may lower the likelihood of both. Its derivative by a
log-probability is a number per answer, known before the gradient is taken. A learner that steps once per
batch and averages ``-advantage * logp`` over all tokens has exactly the gradient of the loss. How the rows
are cut into micro-batches and shared among ranks does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Preferences:
    """The advantages and margins of a batch of pairs."""

    advantages: Tensor
    """[2N, T] of the tokens of all answers."""
    margins: Tensor
    """[N] by which the implicit reward prefers the chosen answer, in nats times beta."""
    imitation: float = 0.0
    """What the chosen answers' cross-entropy adds to the loss."""

    @property
    def loss(self) -> float:
        return float(-functional.logsigmoid(self.margins).mean()) + self.imitation

    @property
    def accuracy(self) -> float:
        """The share of pairs with a margin above 0."""
        return float((self.margins > 0).double().mean())


def dpo(logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor, *, beta: float, imitation: float = 0.0) -> Preferences:
    """Of pairs in rows: row 2i is the chosen answer of pair i, row 2i + 1 the rejected one; all tensors [2N, T].

    >>> one = torch.zeros(2, 1)
    >>> found = dpo(one, one, torch.ones(2, 1).bool(), beta=0.5)
    >>> found.advantages.flatten().tolist(), round(found.loss, 4)
    ([0.5, -0.5], 0.6931)
    """
    gains = torch.where(mask, (logprobs - ref_logprobs).double(), 0.0).sum(dim=1)
    margins = beta * (gains[::2] - gains[1::2])
    pull = beta * torch.sigmoid(-margins) / len(margins)
    chosen = mask[::2]
    per_token = imitation / len(margins) / chosen.sum(dim=1).clamp(min=1)
    rows = torch.stack([pull + per_token, -pull], dim=1).flatten()
    entropy = -(torch.where(chosen, logprobs[::2].double(), 0.0).sum(dim=1) * per_token).sum()
    return Preferences(torch.where(mask, rows[:, None] * mask.sum(), 0.0).float(), margins, float(entropy))
