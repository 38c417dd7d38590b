"""The common start of every builder: the configuration as this machine settles it, and the devices of its processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rlinf.config import Config
from rlinf.config.plan.suited import suited
from rlinf.config.schema import ClusterConfig
from rlinf.samplers.build import environment
from rlinf.train.build.devices import Devices


@dataclass(frozen=True)
class Setup:
    """Made once, before anything is started."""

    config: Config
    devices: Devices
    notes: Mapping[str, str]
    """Where they are not what the configuration alone would say."""

    @classmethod
    def of(cls, config: Config) -> Setup:
        """``config`` with its facts and what this machine decides."""
        devices = Devices.of(config)
        if config.facts.run_kind == "simulator":
            return cls(config, devices, {})
        on_gpu = devices.learner > 0 or devices.sampler > 0
        config, notes = suited(config, on_gpu=on_gpu, learner_on_gpu=devices.learner > 0)
        return cls(config, devices, notes)

    @property
    def cluster(self) -> ClusterConfig:
        """The cluster section, with the environment variables that the sampler's engine needs before its import."""
        cluster = self.config.cluster
        if self.config.facts.run_kind == "simulator":
            return cluster
        needed = environment(self.config.rollout.sampler, device=self.devices.sampler_device)
        return replace(cluster, env={**needed, **cluster.env})
