"""Context parallelism: every rank holds a piece of the packed tokens; for attention, some heads of all tokens.

As in DeepSpeed-Ulysses (arXiv:2309.14509): one all-to-all turns pieces of tokens with all heads into all
tokens with some heads. The attention itself stays what it is, and another all-to-all turns its result back.
Heads cost the same, so no rank waits for another. If there are fewer key-value heads than ranks, keys and
values are gathered instead and each rank keeps the head that its queries use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rlinf.learners.megatron.cpu  # noqa: F401  (before megatron)

# isort: split
import torch
import torch.distributed as dist
from megatron.core.tensor_parallel import all_to_all, gather_from_sequence_parallel_region
from torch import Tensor


def to_heads(piece: Tensor, group: dist.ProcessGroup) -> Tensor:
    """[n, H, D] tokens of this rank -> [N, H / ranks, D] all tokens with this rank's heads."""
    ranks = group.size()
    heads = piece.unflatten(1, (ranks, -1)).movedim(1, 0)
    swapped: Tensor = all_to_all(group, heads.flatten(0, 1))
    return swapped


def to_tokens(heads: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Swap back: [N, H / ranks, D] -> [n, H, D]."""
    swapped: Tensor = all_to_all(group, heads)
    return swapped.unflatten(0, (group.size(), -1)).movedim(0, 1).flatten(1, 2)


def shared_heads(piece: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Keys or values [n, H_kv, D] -> [N, h, D]: those that this rank's queries use."""
    ranks, heads = group.size(), piece.shape[1]
    if heads % ranks == 0:
        return to_heads(piece, group)
    everything: Tensor = gather_from_sequence_parallel_region(piece, group=group)
    head = group.rank() * heads // ranks
    return everything[:, head : head + 1]


class _Sum(torch.autograd.Function):
    """The sum over ranks that each go on to compute the same loss: the gradient is that of one of them."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, groups: Sequence[dist.ProcessGroup]) -> Tensor:
        total = tensor.clone()
        for group in groups:
            dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


def together(tensor: Tensor, groups: Sequence[dist.ProcessGroup]) -> Tensor:
    """Sum what the ranks of each group have, with gradient to this rank's part."""
    wide = [group for group in groups if group.size() > 1]
    total: Tensor = _Sum.apply(tensor, wide) if wide else tensor
    return total
