"""Checkpoints through megatron's distributed checkpointing: saved at one layout, loaded at any other."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rlinf.learners.megatron.cpu  # noqa: F401  (before megatron)

# isort: split
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.optimizer import MegatronOptimizer
from megatron.core.utils import unwrap_model
from torch import nn

from rlinf.learners.moments import own_options

# In this form the optimizer's state can be cut again for other numbers of tensor, pipeline and data ranks.
_SHARDING = "fully_reshardable"


def save_state(folder: Path, chunks: Sequence[nn.Module], optimizer: MegatronOptimizer | None = None) -> None:
    """Write this rank's part of the weights, and of the optimizer if one is given, into ``folder``."""
    if dist.get_rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    dist.barrier()
    dist_checkpointing.save(_sharded(chunks, optimizer, loading=False), str(folder))


def load_state(folder: Path, chunks: Sequence[nn.Module], optimizer: MegatronOptimizer | None = None) -> None:
    """Read this rank's part of what :func:`save_state` wrote, whatever the layout was then."""
    if optimizer is not None:
        for part in optimizer.chained_optimizers:
            # Storage for the moments has to be there before they can be read.
            if hasattr(part, "_init_optimizer_states_with_dummy_values"):
                part._init_optimizer_states_with_dummy_values()
    state = dist_checkpointing.load(_sharded(chunks, optimizer, loading=True), str(folder))
    for name, chunk in _named(chunks):
        unwrap_model(chunk).load_state_dict(state[name])
    if optimizer is not None:
        with own_options(optimizer):
            optimizer.load_state_dict(state["optimizer"])


def _named(chunks: Sequence[nn.Module]) -> list[tuple[str, nn.Module]]:
    return [("model" if len(chunks) == 1 else f"model{number}", chunk) for number, chunk in enumerate(chunks)]


def _sharded(chunks: Sequence[nn.Module], optimizer: MegatronOptimizer | None, *, loading: bool) -> dict[str, Any]:
    """Return the shards of each rank, with their position in the whole."""
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    metadata = {"dp_cp_group": group, "distrib_optim_sharding_type": _SHARDING}
    state: dict[str, Any] = {
        name: unwrap_model(chunk).sharded_state_dict(metadata=metadata) for name, chunk in _named(chunks)
    }
    if optimizer is not None:
        state["optimizer"] = optimizer.sharded_state_dict(dict(state), is_loading=loading, metadata=metadata)
    return state
