"""Decides which GPUs the processes of a run compute on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlinf.cluster import Resources
from rlinf.config import Config
from rlinf.config.facts import gpus_per_learner, is_text, shares_gpus


@dataclass(frozen=True)
class Devices:
    """GPUs of each learner rank and each sampler; colocated ones share them, separate ones have their own."""

    learner: float
    sampler: float

    @classmethod
    def of(cls, config: Config) -> Devices:
        """Those that the configuration asks for, or that come of what this process sees."""
        import torch

        cluster, available = config.cluster, torch.cuda.is_available()
        learner = gpus_per_learner(config, on_gpus=available)
        if config.rollout.sampler == "server":
            return cls(learner, 0.0)
        if cluster.gpus_per_sampler is not None:
            return cls(learner, cluster.gpus_per_sampler)
        wide = _engine_gpus(config, "cuda" if available else "cpu")
        if not shares_gpus(config) or not learner:
            return cls(learner, float(available) * wide)
        return cls(learner / 2, learner / 2 if wide == 1 else float(wide))

    @property
    def all_on_gpus(self) -> bool:
        """Whether learner and samplers both have GPUs."""
        return self.learner > 0 and self.sampler > 0

    @property
    def sampler_device(self) -> str:
        """What a sampler computes on, in torch's words."""
        return "cuda" if self.sampler > 0 else "cpu"

    @property
    def learner_device(self) -> str:
        """What a learner rank computes on, in torch's words."""
        return "cuda" if self.learner > 0 else "cpu"

    def resources(self, config: Config, gpus: float) -> Resources:
        """``gpus`` in the bundle that colocated groups share: it is as wide as the widest rank of them."""
        widest = max(1, math.ceil(self.learner), math.ceil(self.sampler))
        bundle = "policy" if shares_gpus(config) else None
        return Resources(cpus=config.cluster.cpus_per_worker, gpus=gpus, bundle=bundle, bundle_gpus=widest)

    def samplers_sleep(self, config: Config) -> bool:
        """Whether text samplers free their memory for the learner."""
        shared = self.all_on_gpus and shares_gpus(config) and not config.rollout.ahead
        return config.rollout.sleep == "always" or (config.rollout.sleep == "auto" and shared)


def _engine_gpus(config: Config, device: str) -> int:
    """GPUs that one sampler computes on together: those of a tensor-parallel engine."""
    from rlinf.samplers.build import resolve_name

    vllm = is_text(config) and resolve_name(config.rollout.sampler, device=device) == "vllm"
    return config.rollout.vllm.tensor_parallel_size if vllm else 1
