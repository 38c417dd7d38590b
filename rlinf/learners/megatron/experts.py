"""Mixture of experts: a router that counts its load, and experts that compute in one kernel on GPUs.

Load balancing is a loss whose gradient adds up over micro-batches and ranks like everything else: the share of tokens
that each expert got is that of the optimiser step before (Switch Transformer, arXiv:2101.03961, equation 4, takes it
from the same batch, which would make the gradient depend on how rows are cut into micro-batches).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import rlinf.learners.megatron.cpu  # noqa: F401  (before megatron)

# isort: split
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.transformer.moe.experts import SequentialMLP
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler
from megatron.core.transformer.moe.router import TopKRouter
from torch import Tensor, nn
from torch.nn.functional import grouped_mm, silu

from rlinf.data.messages import Metrics


class Replay:
    """Give megatron the experts of a layer's tokens: those of ``routes``, or those that it chooses itself.

    It computes their weights from what is returned, so the gradient reaches the router (:mod:`rlinf.models.routing`).
    """

    def __init__(self) -> None:
        self.routes: Tensor | None = None
        """[N, k] int16 experts of this rank's tokens in the coming pass, -1 where they are not known."""

    def get_replay_topk(
        self, scores: Tensor, topk: int, groups: int | None, group_topk: int | None, choose: Callable[..., Any]
    ) -> tuple[Tensor, Tensor]:
        """(scores, experts) [N, k] of tokens with ``scores`` [N, experts]."""
        own, experts = choose(scores, topk, num_groups=groups, group_topk=group_topk)
        if self.routes is None:
            return own, experts
        chosen = self.routes.long()
        experts = torch.where(chosen >= 0, chosen, experts)
        return scores.gather(1, experts), experts


class Router(TopKRouter):
    """Counts the tokens that each expert gets in passes with gradient (once with recomputation)."""

    def __init__(self, config: Any, pg_collection: Any = None) -> None:
        super().__init__(config=config, pg_collection=pg_collection)
        self.router_replay = Replay()
        self.load = torch.zeros(config.num_moe_experts, dtype=torch.float64)
        """[experts] tokens of this rank since the last :func:`collect_load`."""
        self.previous: Tensor | None = None
        """[experts] tokens of all ranks in the optimiser step before."""

    def routing(self, logits: Tensor, padding_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(weights, choices) [N, experts] of tokens with router logits [N, 1, experts]."""
        weights, chosen = super().routing(logits)
        if not torch.is_grad_enabled():
            return weights, chosen
        real = None if padding_mask is None else ~padding_mask.reshape(-1)
        # On the device: a copy to the host would wait for the layer.
        self.load = self.load.to(chosen.device) + (chosen if real is None else chosen & real[:, None]).sum(0)
        coefficient = self.config.moe_aux_loss_coeff
        if coefficient > 0 and self.previous is not None:
            probabilities = logits.reshape(-1, chosen.shape[1]).float().softmax(-1)
            requested = probabilities if real is None else probabilities * real[:, None]
            tokens = float(self.previous.sum()) / self.topk
            share = (self.previous / self.previous.sum()).float().to(logits.device)
            loss = coefficient * chosen.shape[1] * (requested.sum(0) * share).sum() / tokens
            weights = MoEAuxLossAutoScaler.apply(weights, loss)
        return weights, chosen


class Experts(SequentialMLP):
    """The experts of this rank; in bfloat16 on a GPU one grouped product instead of one expert after another."""

    def forward(self, tokens: Tensor, tokens_per_expert: Tensor, weights: Tensor) -> tuple[Tensor, None]:
        """tokens [N, H] sorted by expert, their counts [experts], router weights [N] -> [N, H]."""
        fits = tokens.device.type == "cuda" and tokens.dtype == torch.bfloat16 and self.tp_group.size() == 1
        if fits and tokens.shape[0]:
            return self.grouped(tokens, tokens_per_expert, weights), None
        out, _ = super().forward(tokens, tokens_per_expert, weights)
        return out, None

    def grouped(self, tokens: Tensor, tokens_per_expert: Tensor, weights: Tensor) -> Tensor:
        """Compute the same by two products; the stacked weights exist for the time of the call."""
        first = torch.stack([expert.linear_fc1.weight for expert in self.local_experts]).transpose(1, 2)
        second = torch.stack([expert.linear_fc2.weight for expert in self.local_experts]).transpose(1, 2)
        ends = tokens_per_expert.to(tokens.device).cumsum(0).to(torch.int32)
        gate, up = grouped_mm(tokens, first, offs=ends).chunk(2, dim=-1)
        middle = (silu(gate) * up * weights[:, None]).to(tokens.dtype)
        return grouped_mm(middle, second, offs=ends)


def routers(chunks: Sequence[nn.Module]) -> Iterator[Router]:
    """Yield the routers of this rank's layers; each has its ``layer_number``, counted from 1 over all stages."""
    for chunk in chunks:
        yield from (module for module in chunk.modules() if isinstance(module, Router))


def replay(chunk: nn.Module, routes: Tensor | None) -> None:
    """Send the tokens of the chunk's next pass to the experts ``routes`` [N, layers * k]; None: to its own.

    Tokens are those of this rank's piece; with tensor parallelism each rank's routers have a part of it in turn.
    """
    for router in routers([chunk]):
        if routes is None:
            router.router_replay.routes = None
            continue
        first = (router.layer_number - 1) * router.topk
        own = routes[:, first : first + router.topk]
        if router.config.sequence_parallel:
            own = own.chunk(parallel_state.get_tensor_model_parallel_world_size())[
                parallel_state.get_tensor_model_parallel_rank()
            ]
        router.router_replay.routes = own


def collect_load(chunks: Sequence[nn.Module], *, layers: int, experts: int, device: torch.device) -> Tensor:
    """[layers, experts] tokens of all ranks since the last call; every rank must call it.

    A token of a layer is on one rank only: tensor-parallel ranks hold different tokens in sequence parallel, which a
    mixture of experts requires.
    """
    load = torch.zeros(layers, experts, dtype=torch.float64)
    own = list(routers(chunks))
    for router in own:
        load[router.layer_number - 1] += router.load.cpu()
        router.load.zero_()
    load = load.to(device)
    dist.all_reduce(load)
    load = load.cpu()
    remember_load(chunks, load)
    return load


def remember_load(chunks: Sequence[nn.Module], load: Tensor) -> None:
    """Tells the routers the load [layers, experts] of the optimiser step before."""
    for router in routers(chunks):
        router.previous = load[router.layer_number - 1]


def load_metrics(load: Tensor) -> Metrics:
    """How uneven a load [layers, experts] is: the busiest expert's tokens over the mean, the share of idle experts.

    >>> load_metrics(torch.tensor([[2.0, 2.0], [4.0, 0.0]]))
    {'expert_load_max': 2.0, 'expert_idle': 0.25}
    """
    even = load.mean(dim=1).clamp(min=1.0)
    return {
        "expert_load_max": float((load.max(dim=1).values / even).max()),
        "expert_idle": float((load == 0).double().mean()),
    }
