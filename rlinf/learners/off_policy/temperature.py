"""The weight of the entropy in soft actor-critic (Haarnoja et al., arXiv:1812.05905, section 5)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from rlinf.schema import AlgorithmConfig


class Temperature:
    """The weight alpha of the entropy: fixed, or learned so that the entropy stays near a target."""

    def __init__(self, algorithm: AlgorithmConfig, target_entropy: float, device: torch.device) -> None:
        """``target_entropy``: used if the configuration names none."""
        self.learned = algorithm.sac_alpha == "auto"
        start = 0.0 if algorithm.sac_alpha == "auto" else math.log(algorithm.sac_alpha)
        self.log = nn.Parameter(torch.tensor(start, device=device), requires_grad=self.learned)
        given = algorithm.sac_target_entropy
        self._target_entropy = target_entropy if given is None else given

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Parameters that move together with the actor: an optimiser of its own would cost as much as the actor's."""
        return [self.log] if self.learned else []

    def value(self) -> Tensor:
        return self.log.detach().exp()

    def add_gradient(self, entropy: Tensor, alpha: Tensor) -> None:
        """Add the gradient of alpha (entropy - target) by log alpha, after the actor's backward pass."""
        if self.learned:
            assert self.log.grad is not None
            self.log.grad.add_((entropy - self._target_entropy) * alpha)
