"""Which of its kernels vLLM computes with on a CPU."""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import Tensor, nn


def use_onednn_products() -> None:
    """Before an engine loads its model: oneDNN for all weights, also those under 1 MiB.

    vLLM's other kernel, which it prefers for those, takes twice as long for a step of 64 rows on one thread (269 and
    126 microseconds for the 576 x 576 weights of SmolLM2's attention), and is no faster with 16 rows or with 256.
    """
    from vllm.model_executor.layers import utils

    utils._CPU_SGL_GEMM_MAX_WEIGHT_BYTES = 0


def use_native_kernels(model: nn.Module) -> None:
    """Lets a loaded model of a CPU worker normalise and gate with vLLM's own compiled kernels.

    Without a compiler vLLM takes several PyTorch calls for each there: a quarter of a step of SmolLM2.
    """
    from vllm.model_executor.layers.activation import SiluAndMul
    from vllm.model_executor.layers.layernorm import RMSNorm

    layer: Any
    for layer in model.modules():
        if type(layer) is RMSNorm and layer.has_weight and layer.variance_size_override is None:
            layer._forward_method = types.MethodType(_normalised, layer)
        elif type(layer) is SiluAndMul:
            layer._forward_method = types.MethodType(_gated, layer)


def _normalised(self: Any, x: Tensor, residual: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
    """``RMSNorm.forward``: the norm of ``x``, or of its sum with ``residual``, and that sum."""
    if residual is None:
        # The kernel reads rows one behind the other, and a head's part of a joined projection is not.
        x = x.contiguous()
        normed = torch.empty_like(x)
        torch.ops._C.rms_norm(normed, x, self.weight.data, self.variance_epsilon)
        return normed
    torch.ops._C.fused_add_rms_norm(x, residual, self.weight.data, self.variance_epsilon)
    return x, residual


def _gated(self: Any, x: Tensor) -> Tensor:
    """``SiluAndMul.forward``: the first half of the last dimension, through SiLU, times the second."""
    product = x.new_empty(*x.shape[:-1], x.shape[-1] // 2)
    torch.ops._C.silu_and_mul(product, x)
    return product
