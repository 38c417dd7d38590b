"""Chunks whose numbers are relative to the state that the robot was in when it decided.

A decision is a chain and that state's numbers, so that its actions follow from it alone. Imitated actions are taken as
they are, and become relative where the state is known.

N rows, H actions of M numbers, of which K with A numbers are carried out; a decision is [N, (S + 1) H M + A].
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rlinf.models.vla.options import VlaOptions
from rlinf.models.vla.published.flow_policy import PublishedHead
from rlinf.models.vla.published.groot_network import SeenContext
from rlinf.models.vla.published.processing import ActionScaling, ActionUnits


class RelativeHead(PublishedHead):
    """As :class:`PublishedHead`, with the numbers of the state at the end of each decision."""

    _bounds: ActionUnits

    def __init__(
        self,
        speed: Any,
        sizes: tuple[int, int],
        space: spaces.Space,
        options: VlaOptions,
        *,
        units: ActionUnits,
        scaling: ActionScaling,
    ) -> None:
        super().__init__(speed, sizes, space, options, units=units)
        self._scaling = scaling
        self.action_shape = (self.noise_size + self.per_action,)
        # One number more, which nothing reads, where an action to imitate would be as long as a decision.
        self.imitation_noise += int(self.chain.numbers + self.imitation_noise == self.action_shape[0])

    def sample(self, context: SeenContext, noise: Tensor) -> Tensor:
        return torch.cat([super().sample(context, noise), context.reference], dim=1)

    def followed(self, context: SeenContext, noise: Tensor) -> Tensor:
        return torch.cat([super().followed(context, noise), context.reference], dim=1)

    def log_prob(self, context: SeenContext, actions: Tensor) -> Tensor:
        if actions.shape[1] == self.action_shape[0]:
            own = actions[:, : self.noise_size]
        else:
            whole, noise = actions.tensor_split([self.chain.numbers], dim=1)
            own = torch.cat([self._relative(whole, context.reference), noise], dim=1)
        return super().log_prob(context, own)

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        ends, reference = actions[:, : self.noise_size], actions[:, self.noise_size :]
        numbers = ends[:, -self.chain.numbers :].reshape(len(ends), self.horizon, self.width)
        return self._bounds.to_env(numbers[:, : self.chunk, : self.per_action], reference[:, None])

    def from_env(self, actions: np.ndarray) -> np.ndarray:
        """[N, H M]: K actions in the units of the data set, filled up with zeros."""
        whole = np.zeros((len(actions), self.horizon, self.width), dtype=np.float32)
        whole[:, : self.chunk, : self.per_action] = self._bounds.signed(actions)
        return whole.reshape(len(actions), -1)

    def _relative(self, whole: Tensor, reference: Tensor) -> Tensor:
        """Numbers [N, H M] of the network of actions in the units of the data set; the last one goes on."""
        parts = whole.unflatten(1, (self.horizon, self.width))[:, : self.chunk, : self.per_action]
        own = self._scaling.scaled(parts - reference[:, None])
        result = whole.new_zeros(len(whole), self.horizon, self.width)
        result[:, : self.chunk, : self.per_action] = own
        result[:, self.chunk :, : self.per_action] = own[:, -1:]
        return result.flatten(1)
