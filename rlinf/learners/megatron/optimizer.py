"""megatron's Adam, over all parameters or with its state spread over data-parallel ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from rlinf.learners.megatron.convert import VALUE_HEAD

# isort: split
import torch
from megatron.core.optimizer import MegatronOptimizer, OptimizerConfig, ParamKey, get_megatron_optimizer
from megatron.core.optimizer.clip_grads import clip_grad_by_total_norm_fp32
from megatron.core.optimizer_param_scheduler import ParamGroupOverride
from torch import Tensor, nn

from rlinf.learners.stage import Stage


def make_optimizer(
    stage: Stage, chunks: Sequence[nn.Module], *, distributed: bool, dtype: torch.dtype
) -> MegatronOptimizer:
    """AdamW with weight decay on every parameter, as the torch learner has it (megatron's own habit spares vectors)."""
    options = stage.optimizer
    config = OptimizerConfig(
        optimizer="adam",
        lr=options.lr,
        weight_decay=options.weight_decay,
        adam_beta1=options.betas[0],
        adam_beta2=options.betas[1],
        adam_eps=options.eps,
        bf16=dtype == torch.bfloat16,
        params_dtype=dtype,
        use_distributed_optimizer=distributed,
        clip_grad=0.0,
    )
    # The second key is one of those by which megatron finds a checkpoint's groups again; without it both would be one.
    critic = {"max_lr": options.critic_lr or options.lr, "is_decoupled_lr": True}
    overrides = {ParamKey(name=f"*{VALUE_HEAD}*"): cast(ParamGroupOverride, critic)}
    return get_megatron_optimizer(config, list(chunks), overrides)


def gradient_norm(optimizer: MegatronOptimizer) -> float:
    """Compute the norm over the whole model, before clipping; the same on all ranks.

    Gradients are then ready to be applied."""
    optimizer.prepare_grads()
    return float(optimizer.get_grad_norm())


def take_step(optimizer: MegatronOptimizer, *, factor: float, norm: float, clip: float) -> None:
    """Scales the ready gradients to a norm of at most ``clip`` (0 is off), applies them at ``factor`` x the rates."""
    for group in optimizer.param_groups:
        group["lr"] = group["max_lr"] * factor
    for part in optimizer.chained_optimizers:
        parameters = part.get_parameters()
        if clip > 0 and parameters:
            clip_grad_by_total_norm_fp32(parameters, max_norm=clip, total_norm=norm)
    optimizer.step_with_ready_grads()


def count_padding(chunks: Sequence[Any]) -> None:
    """Count the padding between the buckets of a buffer as part of it; call this before an optimizer is made.

    megatron writes a buffer's state without that padding, and then finds parameters at their positions with it.
    Tied embeddings of several pipeline stages, whose bucket is the second, would be saved shifted and end in
    zeros. A comment of its `distrib_optimizer` calls that a bug. Padding after the last bucket moves nothing and
    is left out.
    """
    for chunk in chunks:
        for buffer in [*chunk.buffers, *chunk.expert_parallel_buffers]:
            for bucket in buffer.buckets[:-1]:
                bucket.numel_unpadded = bucket.grad_data.numel()
            buffer.numel_unpadded = sum(bucket.numel_unpadded for bucket in buffer.buckets)


def gradient_buffers(chunks: Sequence[Any]) -> list[Tensor]:
    """Return the flat buffers that hold all gradients of this rank, of chunks in their gradient wrappers."""
    return [buffer.grad_data for chunk in chunks for buffer in [*chunk.buffers, *chunk.expert_parallel_buffers]]
