"""One rank of a PyTorch learner where the configuration puts it, for text and simulators alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rlinf.cluster import RankInfo
from rlinf.config import Config
from rlinf.interfaces import Policy
from rlinf.train.build.devices import Devices
from rlinf.train.build.stages import stages_of

if TYPE_CHECKING:
    import torch

    from rlinf.learners.ranks import Ranks
    from rlinf.learners.torch import TorchLearner


def learner_device(config: Config) -> torch.device:
    """The GPU that Ray shows this worker, or the CPU."""
    import torch

    return torch.device(Devices.of(config).learner_device)


def join_group(config: Config, info: RankInfo) -> torch.device:
    """Meets the other ranks; also a single rank gets a group. Returns this rank's device."""
    from rlinf.learners.process_group import join

    device = learner_device(config)
    join(
        rank=info.rank,
        size=info.size,
        address=info.master_address,
        port=info.master_port,
        device=device,
        timeout_s=config.cluster.call_timeout_s,
    )
    return device


def placed(config: Config, info: RankInfo) -> tuple[torch.device, Ranks]:
    """Where this rank computes, and the others. A single rank needs no process group."""
    from rlinf.learners.ranks import ONE_RANK, TorchRanks

    if info.size == 1:
        return learner_device(config), ONE_RANK
    device = join_group(config, info)
    return device, TorchRanks(device=device)


def torch_learner(config: Config, info: RankInfo, make_policy: Callable[[str], Policy]) -> TorchLearner:
    """``make_policy`` gets the device's type."""
    from rlinf.learners.torch import TorchLearner

    device, ranks = placed(config, info)
    return TorchLearner(
        make_policy(device.type),
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
