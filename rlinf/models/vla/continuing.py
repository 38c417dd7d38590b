"""A chunk that continues the one before it (real-time chunking: Black, Galliker, Levine 2025, arXiv:2506.07339).

While a policy computes, the robot carries out actions of the chunk before. So the new chunk must begin as that one goes
on. The flow is guided: each step's velocity is moved such that the action it aims at comes nearer to what is left of
the old chunk, fully where actions will be carried out meanwhile, less and less after them. As in LeRobot 0.6, the
correction is not passed through the network (the paper multiplies it by its Jacobian).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlinf.models.vla.flow import FlowHead, Speed
from rlinf.models.vla.pi0 import Pi0Head

MOST = 5.0
"""Largest factor of a correction, as in the paper."""


def prefix_weights(delay: int, left: int, total: int) -> Tensor:
    """Weights [total]: 1 for ``delay`` actions, falling exponentially until ``left``, 0 after."""
    falling = torch.linspace(1.0, 0.0, max(left - delay, 0) + 2)[1:-1]
    falling = falling * torch.expm1(falling) / (math.e - 1.0)
    weights = torch.zeros(total)
    weights[: min(delay, left)] = 1.0
    weights[min(delay, left) : left] = falling[: max(left - delay, 0)]
    return weights


def guided(speed: Speed, wanted: Tensor, weights: Tensor) -> Speed:
    """Return the velocity that leads to ``wanted`` [N, n] where ``weights`` [N, n]."""

    def velocity(points: Tensor, times: Tensor) -> Tensor:
        own, time = speed(points, times), times[:, None]
        error = (wanted - (points - time * own)) * weights
        rest = 1.0 - time
        factor = torch.nan_to_num(time / rest * (time**2 + rest**2) / time**2, posinf=MOST).clamp(max=MOST)
        return own - factor * error

    return velocity


@torch.no_grad()
def continue_chunk(policy: Any, leaves: dict[str, Tensor], rest: np.ndarray, delay: int) -> np.ndarray:
    """Return the next chunk [K, *shape] of a flow policy at one observation (leaves [1, ...]).

    ``rest`` [L, *shape]: the actions that are left, of which ``delay`` will be carried out before the answer is there.
    Raises ValueError for a policy without a flow, and for more actions than a chunk has.
    """
    head = policy.head
    if not isinstance(head, FlowHead):
        raise ValueError("only a flow policy (policy.name: flow) continues a chunk")
    if head.action_shape[0] != head.noise_size:
        raise ValueError("a chunk of actions relative to the state is not continued: they are relative to another one")
    chunk = policy.granularity.actions
    if len(rest) > chunk or not 0 <= delay <= len(rest):
        raise ValueError(f"{len(rest)} actions are left and {delay} of them late; a chunk has {chunk}")
    context, _ = policy.read(leaves)
    start = head.mode(context)[:, : head.chain.numbers]
    known = np.concatenate([rest, np.repeat(rest[-1:], chunk - len(rest), axis=0)])[None] if len(rest) else None
    if known is None:
        return np.asarray(policy.env_actions(head.followed(context, start).numpy())[0])
    wanted = torch.from_numpy(policy.own_actions(known if chunk > 1 else known[:, 0])).reshape(1, -1)
    weights = torch.zeros(1, head.chain.numbers)
    table = weights.view(-1, head.width if isinstance(head, Pi0Head) else head.per_action)
    table[:, : head.per_action] = prefix_weights(delay, len(rest), len(table))[:, None]
    chains = head.chain.follow(guided(head.speed_of(context), wanted, weights), 1, start)
    return np.asarray(policy.env_actions(chains.numpy())[0])
