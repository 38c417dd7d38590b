"""The workers of a simulator run that act with a copy of the policy: both take its weights by every transport."""

from __future__ import annotations

from rlinf.cluster.weights.receiver import WeightFollower
from rlinf.rollouts.simulator.env_worker import EnvWorker
from rlinf.samplers.policy_server import PolicyWorker


class SimulatorWorker(EnvWorker, WeightFollower):
    """Steps environments, and acts in them unless policy servers do."""

    def takes_adapters(self) -> bool:
        return True


class PolicyServerWorker(PolicyWorker, WeightFollower):
    """Acts for env workers."""

    def takes_adapters(self) -> bool:
        return True
