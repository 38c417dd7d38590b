"""The common start of every builder: the configuration as this machine settles it, and the devices of its processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rlinf.config import Config
from rlinf.config.facts import RunKind, SettledConfig, run_kind, settled
from rlinf.config.machine import memory_bytes
from rlinf.config.plan.micro_batch import fitting_micro_batch
from rlinf.config.plan.precision import policy_dtype
from rlinf.config.schema import ClusterConfig
from rlinf.samplers.build import environment
from rlinf.train.build.devices import Devices


@dataclass(frozen=True)
class Setup:
    """Made once, before anything is started."""

    kind: RunKind
    config: SettledConfig
    devices: Devices
    notes: Mapping[str, str]
    """Where they are not what the configuration alone would say."""

    @classmethod
    def of(cls, config: Config) -> Setup:
        """``config`` with what this machine decides, the same for all workers."""
        kind = run_kind(config)
        devices = Devices.of(config, kind)
        if kind == "simulator":
            return cls(kind, settled(config), devices, {})
        dtype = policy_dtype(config, on_gpu=devices.learner > 0 or devices.sampler > 0)
        chosen = config.policy.dtype == "auto" and dtype == "bfloat16" and devices.learner == 0
        notes = {"policy.dtype auto": "bfloat16: a large model, and this CPU has instructions for it"} if chosen else {}
        config = replace(config, policy=replace(config.policy, dtype=dtype))
        if devices.learner == 0:
            asked, fits = config.learner.micro_batch_tokens, fitting_micro_batch(config, memory_bytes())
            if fits < asked:
                notes["learner.micro_batch_tokens"] = f"{fits}: {asked} do not fit into half of this machine's memory"
                config = replace(config, learner=replace(config.learner, micro_batch_tokens=fits))
        return cls(kind, settled(config), devices, notes)

    @property
    def cluster(self) -> ClusterConfig:
        """The cluster section, with the environment variables that the sampler's engine needs before its import."""
        cluster = self.config.cluster
        if self.kind == "simulator":
            return cluster
        needed = environment(self.config.rollout.sampler, device=self.devices.sampler_device)
        return replace(cluster, env={**needed, **cluster.env})
