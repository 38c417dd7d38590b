"""A vision tower conditioned on the instruction (FiLM: Perez et al. 2018, https://arxiv.org/abs/1709.07871).

If words meet pictures in the language model alone, the tower must code everything that any instruction could
need. It must do so before the language model has learned to attend to it. Fine-tuned robot policies that stop
following language are repaired in the same way (Kim et al. 2025, https://arxiv.org/abs/2502.19645).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rlinf.models.vla.backbones import encoder_layers


def mean_of_words(embedded: Tensor, present: Tensor) -> Tensor:
    """Compute the mean of the instruction's embeddings [N, L, width] where ``present`` [N, L], [N, width]."""
    weights = present.to(embedded.dtype)
    return torch.einsum("nlw,nl->nw", embedded, weights) / weights.sum(dim=1, keepdim=True)


class Film(nn.Module):
    """Scales and shifts what enters each layer of a tower by linear functions of the words. Starts as no change."""

    def __init__(self, tower: Any, width: int) -> None:
        super().__init__()
        layers = encoder_layers(tower)
        # Embeddings differ in size from model to model; what the layers below start from does not.
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.layers = nn.ModuleList(nn.Linear(width, 2 * tower.config.hidden_size) for _ in layers)
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    @contextmanager
    def applied_to(self, tower: Any, words: Tensor) -> Iterator[None]:
        """While it is open, the passes of ``tower`` on N images are conditioned on ``words`` [N, width]."""
        code = self.norm(words)
        handles = [
            layer.register_forward_pre_hook(partial(_modulate, *own(code).unsqueeze(1).chunk(2, dim=-1)))
            for layer, own in zip(encoder_layers(tower), self.layers, strict=True)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _modulate(scale: Tensor, shift: Tensor, _layer: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Scale and shift the hidden states [N, patches, hidden] that a layer is called with."""
    hidden, *rest = arguments
    return (hidden * (1 + scale) + shift, *rest)
