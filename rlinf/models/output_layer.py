"""Logits from hidden states, as the model's own forward pass gives them.

Some families scale or bound the product with the output embedding. transformers does so in ``forward``, which learners
do without: they make the logits of responses alone, some rows at a time.
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class OutputLayer:
    """The output embedding of a model with what the model does to its product."""

    head: Any
    """[H] -> [V]"""
    scale: float = 1.0
    """Cohere's ``logit_scale``, Falcon-H1's ``lm_head_multiplier``, one over Granite's ``logits_scaling``."""
    cap: float | None = None
    """Bound of the logits, by a hyperbolic tangent: ``final_logit_softcapping`` of Gemma 2 (arXiv:2408.00118)."""

    @classmethod
    def of(cls, model: Any) -> Self:
        """Take the head of a transformers model, and the numbers of its configuration."""
        config, scale = model.config.get_text_config(), 1.0
        # By family: others have keys of these names that transformers does not apply (MPT's logit_scale).
        if config.model_type.startswith("cohere"):
            scale = 1.0 if config.logit_scale is None else config.logit_scale
        elif config.model_type == "falcon_h1":
            scale = config.lm_head_multiplier
        elif config.model_type.startswith("granite"):
            scale = 1.0 / config.logits_scaling
        return cls(model.get_output_embeddings(), scale, getattr(config, "final_logit_softcapping", None))

    @property
    def linear(self) -> bool:
        """Whether logits are the product alone."""
        return self.scale == 1.0 and self.cap is None

    def __call__(self, hidden: Tensor) -> Tensor:
        """Logits [S, V] of hidden states [S, H]."""
        logits: Tensor = self.head(hidden)
        if self.scale != 1.0:
            logits = logits * self.scale
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)


def use_float32_logits(model: Any) -> None:
    """Let ``model`` make logits in float32, under autocast and with 16-bit weights too.

    Rounded logits are a large part of the difference between sampler and learner in bfloat16 (arXiv:2506.13585).
    """
    head = model.get_output_embeddings()
    usual = head.forward

    def product(self: nn.Module, hidden: Tensor) -> Tensor:
        with torch.autocast(hidden.device.type, enabled=False):
            if type(self) is not nn.Linear:  # with adapters, whose weights are float32
                logits: Tensor = usual(hidden.float())
                return logits
            bias = None if self.bias is None else self.bias.float()
            return nn.functional.linear(hidden.float(), self.weight.float(), bias)

    head.forward = types.MethodType(product, head)
