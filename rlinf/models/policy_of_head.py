"""The common part of policies that end in an action head: properties of their decisions, and their weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from torch import Tensor, nn


class DecidingHead(Protocol):
    """An action head as policies read it."""

    @property
    def noise_kind(self) -> str: ...

    @property
    def noise_size(self) -> int: ...

    @property
    def action_shape(self) -> tuple[int, ...]: ...

    @property
    def action_dtype(self) -> type[np.generic]: ...

    def from_env(self, actions: np.ndarray) -> np.ndarray: ...


class PolicyOfHead(nn.Module):
    """The part of an `interfaces.ActingPolicy` that its ``head`` determines."""

    head: DecidingHead

    @property
    def noise_kind(self) -> str:
        """Distribution of the numbers that a decision consumes: "uniform" on [0, 1) or standard "normal"."""
        return self.head.noise_kind

    @property
    def noise_size(self) -> int:
        return self.head.noise_size

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of one action of this policy (which may differ from the environment's)."""
        return self.head.action_shape

    @property
    def action_dtype(self) -> type[np.generic]:
        return self.head.action_dtype

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Every weight and every running statistic, by name."""
        for name, tensor in self.state_dict().items():
            yield name, tensor.detach()

    def own_actions(self, actions: np.ndarray) -> np.ndarray:
        """Return the actions of this policy that equal environment actions [N, ...], with chunks [N, K, ...].

        A demonstration is learned as these actions."""
        return self.head.from_env(actions)
