"""One rank of a PyTorch learner, on the device that the configuration sets, for text and simulators alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlinf.cluster import RankInfo
from rlinf.config import Config
from rlinf.interfaces import TrainablePolicy
from rlinf.train.assemble.stages import stages_of

if TYPE_CHECKING:
    import torch

    from rlinf.learners.ranks import Ranks
    from rlinf.learners.torch import TorchLearner


def join_group(device: torch.device, info: RankInfo, *, timeout_s: float) -> None:
    """Meets the other ranks, each on its ``device``; also a single rank gets a group."""
    from rlinf.learners.process_group import join

    join(
        rank=info.rank,
        size=info.size,
        address=info.master_address,
        port=info.master_port,
        device=device,
        timeout_s=timeout_s,
    )


def all_ranks(device: torch.device, info: RankInfo, *, timeout_s: float) -> Ranks:
    """All ranks, met. A single one needs no process group."""
    from rlinf.learners.ranks import ONE_RANK, TorchRanks

    if info.size == 1:
        return ONE_RANK
    join_group(device, info, timeout_s=timeout_s)
    return TorchRanks(device=device)


def torch_learner(
    config: Config, device: torch.device, info: RankInfo, make_policy: Callable[[], TrainablePolicy]
) -> TorchLearner:
    """Build a rank that joins the others first, then makes its policy."""
    from rlinf.learners.torch import TorchLearner

    ranks = all_ranks(device, info, timeout_s=config.cluster.call_timeout_s)
    return TorchLearner(
        make_policy(),
        stages=stages_of(config),
        seed=config.run.seed,
        micro_batch_tokens=config.learner.micro_batch_tokens,
        device=device,
        rank=info.rank,
        size=info.size,
        ranks=ranks,
        offload=config.learner.offload,
        compare_float32_every=config.learner.compare_float32_every,
    )


def towers_fsdp_learner(
    config: Config, device: torch.device, info: RankInfo, make_policy: Callable[[], Any]
) -> TorchLearner:
    """Build a rank of `learner.backend: fsdp` for policies with towers."""
    from rlinf.learners.fsdp_towers import TowersFSDPLearner

    join_group(device, info, timeout_s=config.cluster.call_timeout_s)
    return TowersFSDPLearner(
        make_policy(),
        stages=stages_of(config),
        seed=config.run.seed,
        micro_batch_tokens=config.learner.micro_batch_tokens,
        device=device,
        offload=config.learner.offload,
    )
