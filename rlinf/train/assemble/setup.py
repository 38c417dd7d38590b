"""The common start of every builder: the configuration as this machine settles it, and the GPUs of its processes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rlinf.cluster import GroupSize, Resources
from rlinf.config.experiment import Config
from rlinf.planning.suited import fit_to_machine
from rlinf.samplers.build import environment
from rlinf.schema import ClusterConfig
from rlinf.schema.derived import gpus_per_learner


@dataclass(frozen=True)
class ResolvedRun:
    """Made once, before anything is started."""

    config: Config
    devices: Devices
    notes: Mapping[str, str]
    """Settings that differ from the configuration's, and why."""

    @classmethod
    def of(cls, config: Config, *, gpus: bool | None = None) -> ResolvedRun:
        """``config`` with its facts and what this machine decides; ``gpus``: as if machines had some, or none."""
        devices = Devices.of(config, gpus=gpus)
        if config.facts.run_kind == "simulator":
            return cls(config, devices, {})
        on_gpu = devices.learner > 0 or devices.sampler > 0
        config, notes = fit_to_machine(config, on_gpu=on_gpu, learner_on_gpu=devices.learner > 0)
        return cls(config, devices, notes)

    @property
    def groups(self) -> dict[str, GroupSize]:
        """All groups of workers, in the order in which their seats are reserved."""
        config, devices = self.config, self.devices
        own = Resources(cpus=devices.cpus)
        groups = {"env": GroupSize(config.env.num_workers, replace(own, spread=True))}
        # The bundle that colocated groups share is as wide as the widest rank of them.
        widest = max(1, math.ceil(devices.learner), math.ceil(devices.sampler))
        own_or_shared = replace(own, bundle="policy" if devices.shared else None, bundle_gpus=widest)
        groups["learner"] = GroupSize(config.learner.num_workers, replace(own_or_shared, gpus=devices.learner))
        if _has_samplers(config):
            groups["sampler"] = GroupSize(config.rollout.num_samplers, replace(own_or_shared, gpus=devices.sampler))
        if config.reward_model.supervision != "none":
            groups["reward_model"] = GroupSize(1, replace(own, gpus=config.reward_model.gpus))
        return groups

    @property
    def cluster(self) -> ClusterConfig:
        """The cluster section, with the environment variables that the sampler's engine needs before its import."""
        cluster = self.config.cluster
        if self.config.facts.run_kind == "simulator":
            return cluster
        needed = environment(self.config.rollout.sampler, device=self.devices.sampler_device)
        return replace(cluster, env={**needed, **cluster.env})


def _has_samplers(config: Config) -> bool:
    """Whether the policy acts in processes of its own, and not in those of the environments."""
    kind, acts_in = config.facts.run_kind, config.facts.acts_in
    return kind == "text" or (kind == "simulator" and acts_in == "sampler")


@dataclass(frozen=True)
class Devices:
    """GPUs of each learner rank and each sampler; colocated ones share them, separate ones have their own."""

    learner: float
    sampler: float
    shared: bool
    cpus: float
    """CPUs of any worker."""

    @classmethod
    def of(cls, config: Config, *, gpus: bool | None = None) -> Devices:
        """Return those that the configuration requests, or that follow from what this process sees.

        ``gpus``: whether there are GPUs, if that is not this process's to see.
        """
        import torch

        available = torch.cuda.is_available() if gpus is None else gpus
        learner = gpus_per_learner(config.cluster, on_gpus=available)
        sampler = config.cluster.gpus_per_sampler
        # Samplers that are alone on GPUs have those of no learner.
        shared = config.facts.shares_gpus and _has_samplers(config) and bool(learner or not sampler)
        if not _has_samplers(config) or config.rollout.sampler == "server":
            sampler = 0.0
        elif sampler is None:
            from rlinf.samplers.build import resolve_name

            # A sampler with a tensor-parallel engine computes on several GPUs together.
            device, is_text = "cuda" if available else "cpu", config.facts.run_kind == "text"
            vllm = is_text and resolve_name(config.rollout.sampler, device=device) == "vllm"
            wide = config.rollout.vllm.tensor_parallel_size if vllm else 1
            if shared and learner:
                learner, sampler = learner / 2, learner / 2 if wide == 1 else float(wide)
            else:
                sampler = float(available) * wide
        return cls(learner, sampler, shared, config.cluster.cpus_per_worker)

    @property
    def all_on_gpus(self) -> bool:
        """Whether learner and samplers both have GPUs."""
        return self.learner > 0 and self.sampler > 0

    @property
    def sampler_device(self) -> str:
        """The device that a sampler computes on, in torch's words."""
        return "cuda" if self.sampler > 0 else "cpu"

    @property
    def learner_device(self) -> str:
        """The device that a learner rank computes on, in torch's words."""
        return "cuda" if self.learner > 0 else "cpu"

    def samplers_sleep(self, config: Config) -> bool:
        """Whether text samplers free their memory for the learner."""
        in_turns = self.all_on_gpus and self.shared and not config.facts.overlaps
        return config.rollout.sleep == "always" or (config.rollout.sleep == "auto" and in_turns)
