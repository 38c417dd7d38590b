"""The policy's side of stepping: observations and noise in, actions out, as numpy arrays.

While stepping only actions are needed. Log-probabilities and values come afterwards, from one evaluation of all slots
together, which costs a fraction of asking for them at every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from rlinf.granularity import Granularity
from rlinf.models.actor_critic.spaces import Arrays
from rlinf.streams import stream_seed
from rlinf.types import PolicyOutput


class SimulatorPolicy(Protocol):
    """What rollouts ask of a policy beside `interfaces.Policy`."""

    state_size: int
    granularity: Granularity
    noise_kind: str
    noise_size: int
    action_shape: tuple[int, ...]
    action_dtype: type[np.generic]

    def step(self, inputs: Mapping[str, Tensor], state: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]: ...

    def evaluate(self, inputs: Mapping[str, Tensor], actions: Tensor, mask: Tensor) -> PolicyOutput: ...

    def values(self, inputs: Mapping[str, Tensor], state: Tensor) -> Tensor: ...

    def states(self, inputs: Mapping[str, Tensor], shape: torch.Size) -> Tensor: ...

    def env_actions(self, actions: np.ndarray) -> np.ndarray: ...


def decide(
    policy: SimulatorPolicy, observations: Arrays, state: np.ndarray, noise: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Actions [N, ...] and recurrent states [N, S]; greedy without noise."""
    inputs = {name: torch.from_numpy(leaf) for name, leaf in observations.items()}
    with torch.inference_mode():
        actions, next_state = policy.step(
            inputs, torch.from_numpy(state), None if noise is None else torch.from_numpy(noise)
        )
    return actions.numpy(), next_state.numpy()


class NoiseStream:
    """Noise of one lane or one episode: a function of its keys and of how often it was drawn from, of nothing else."""

    def __init__(self, kind: str, size: int, seed: int, *keys: int | str) -> None:
        self._generator = np.random.Generator(np.random.Philox(stream_seed(seed, *keys)))
        self._kind = kind
        self._size = size

    def draw(self, decisions: int) -> np.ndarray:
        """[decisions, noise_size] float32, for the next so many decisions."""
        shape = (decisions, self._size)
        if self._kind == "uniform":
            return self._generator.random(shape, dtype=np.float32)
        return self._generator.standard_normal(shape, dtype=np.float32)
