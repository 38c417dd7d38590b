"""DDPG (Lillicrap et al., arXiv:1509.02971): TD3 with one critic, an exact target and an actor that always moves."""

from __future__ import annotations

import torch
from torch import Tensor

from rlinf.learners.off_policy.td3 import Td3Objective


class DdpgObjective(Td3Objective):
    """Critic, actor and targets move in every update; the target is ``r + discount Q'(s', pi'(s'))``.

    Exploration is Gaussian, instead of the paper's correlated noise, as in most implementations since.
    """

    def acts_now(self, number: int) -> bool:
        return True

    def smoothing(self, noise: Tensor) -> Tensor:
        return torch.zeros_like(noise)
