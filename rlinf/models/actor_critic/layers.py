"""Layers with orthogonal initialisation (gain per use, zero bias), as on-policy control needs them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from torch import nn

from rlinf.models.actor_critic.options import Activation

# A linear layer's output has no other reader, so the rectifier may write over it.
_ACTIVATIONS: dict[Activation, Callable[[], nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": partial(nn.ReLU, inplace=True),
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "elu": nn.ELU,
    "leaky_relu": nn.LeakyReLU,
    "selu": nn.SELU,
    "mish": nn.Mish,
}
HIDDEN_GAIN = math.sqrt(2.0)


def activation_module(name: Activation) -> nn.Module:
    return _ACTIVATIONS[name]()


def orthogonal(layer: nn.Linear | nn.Conv2d, gain: float = HIDDEN_GAIN) -> nn.Linear | nn.Conv2d:
    """Initialise a layer: orthogonal weight of the given gain, zero bias."""
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def mlp(inputs: int, hidden: Sequence[int], activation: Activation) -> nn.Sequential:
    """[..., inputs] -> [..., hidden[-1]]; the identity if ``hidden`` is empty."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [orthogonal(nn.Linear(inputs, width)), activation_module(activation)]
        inputs = width
    return nn.Sequential(*layers)
