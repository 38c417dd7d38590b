"""Layers with the uniform first weights that are customary off-policy, and ensembles of critics made of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from rlinf.models.actor_critic.layers import activation_module
from rlinf.models.actor_critic.options import Activation


class TransposedLinear(nn.Module):
    """A linear layer whose weight lies [in, out], with the uniform first weights that are customary off-policy.

    With few inputs the products of its backward pass take a fifth of the time that those of `nn.Linear` do.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))

    def forward(self, values: Tensor) -> Tensor:
        """[N, in] to [N, out]."""
        return torch.addmm(self.bias, values, self.weight)


def body(inputs: int, hidden: Sequence[int], activation: Activation, *, layer_norm: bool = False) -> nn.Sequential:
    """[N, inputs] to [N, hidden[-1]]; with ``layer_norm`` each layer is normalised before its activation."""
    layers: list[nn.Module] = []
    linear: list[nn.Module] = [TransposedLinear(inputs, hidden[0])]
    linear += [nn.Linear(before, width) for before, width in itertools.pairwise(hidden)]
    for layer, width in zip(linear, hidden, strict=True):
        norm = [nn.LayerNorm(width)] if layer_norm else []
        layers += [layer, *norm, activation_module(activation)]
    return nn.Sequential(*layers)


class CriticEnsemble(nn.Module):
    """``count`` independent estimates of the return.

    Of (features [N, F], action [N, A]) they are [count, N], or with several ``outputs`` the quantiles of a
    distribution, [count, N, outputs], in no order. Of the features alone they are one for each
    discrete action: [count, N, outputs].

    As batched products of all they would be no faster: these are slow with the thin first and last layers.
    """

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        activation: Activation,
        outputs: int = 1,
        *,
        count: int = 2,
        layers: Callable[[int, Sequence[int], Activation], nn.Sequential] = body,
    ) -> None:
        """``layers``: makes the hidden ones of a critic, as :func:`body` does."""
        super().__init__()
        self.outputs = outputs
        critics = [[*layers(inputs, hidden, activation), nn.Linear(hidden[-1], outputs)] for _ in range(count)]
        self.critics = nn.ModuleList(nn.Sequential(*critic) for critic in critics)

    def forward(self, features: Tensor, actions: Tensor | None = None) -> Tensor:
        joint = features if actions is None else torch.cat([features, actions], dim=-1)
        estimates = [critic(joint) for critic in self.critics]
        single = actions is not None and self.outputs == 1
        return torch.cat(estimates, dim=1).T if single else torch.stack(estimates)

    def first(self, features: Tensor, actions: Tensor) -> Tensor:
        """Return the estimates [N, outputs] of the first critic alone."""
        estimate: Tensor = self.critics[0](torch.cat([features, actions], dim=-1))
        return estimate


def quantile_fractions(count: int) -> Tensor:
    """Return the midpoints [count] of ``count`` equal parts of [0, 1] (Dabney et al., arXiv:1710.10044, lemma 2).

    >>> quantile_fractions(4)
    tensor([0.1250, 0.3750, 0.6250, 0.8750])
    """
    return (torch.arange(count) + 0.5) / count
