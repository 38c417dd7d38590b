"""A value head on the last pipeline stage: it reads the states that the output layer reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rlinf.learners.megatron.cpu  # noqa: F401  (before megatron)

# isort: split
import torch
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.utils import unwrap_model
from torch import Tensor, nn


class ValueHead(nn.Linear):
    """One number per token. ``values`` are those of the last forward pass, with gradient, until they are taken."""

    def __init__(self, config: TransformerConfig, device: torch.device) -> None:
        super().__init__(config.hidden_size, 1, device=device, dtype=config.params_dtype)
        for parameter in self.parameters():
            # In sequence parallel each rank sees other tokens: the gradient is summed over tensor-parallel ranks.
            parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
        self.values: Tensor | None = None

    def judge(self, _layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        """Judge the input of a layer, states [n, 1, H]: a hook before its forward pass."""
        bias = self.bias.float()
        self.values = nn.functional.linear(inputs[0].float(), self.weight.float(), bias)[:, 0, 0]


def take_values(chunks: Iterable[nn.Module]) -> Tensor | None:
    """[n] of the forward pass that has just ended, if this rank has a value head.

    They are not kept: through their gradient they hold the pass's activations, and the ranks' process groups.
    """
    for chunk in chunks:
        head = getattr(unwrap_model(chunk), "value_head", None)
        if head is not None:
            values, head.values = head.values, None
            assert values is None or isinstance(values, Tensor)
            return values
    return None
