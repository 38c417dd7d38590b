"""The learner of algorithms that see recorded transitions alone: nothing is collected, a step is a number of updates.

Of several ranks each holds all transitions, and takes its share of those of an update.
"""

from __future__ import annotations

from rlinf.data.batch import Batch
from rlinf.data.messages import Metrics
from rlinf.data.shards import RankBatch
from rlinf.learners.off_policy.learner import OffPolicyLearner
from rlinf.learners.off_policy.objective import Placement
from rlinf.learners.off_policy.replay_buffer import ReplayBuffer
from rlinf.models.off_policy.networks import OffPolicyNetworks
from rlinf.schema import AlgorithmConfig, OptimizerConfig


class OfflineLearner(OffPolicyLearner):
    """An `interfaces.Learner` whose transitions are those of `algorithm.prior_data`."""

    saves_replay = False

    def __init__(
        self,
        policy: OffPolicyNetworks,
        algorithm: AlgorithmConfig,
        optimizer: OptimizerConfig,
        *,
        seed: int,
        recorded: Batch,
        placement: Placement | None = None,
    ) -> None:
        """Keep all transitions, which ``recorded`` has in one row [1, T]."""
        super().__init__(policy, algorithm, optimizer, seed=seed, placement=placement)
        self.replay = ReplayBuffer(recorded.num_positions)
        self.replay.add(recorded)

    def update(self, batch: Batch | RankBatch, *, step: int) -> Metrics:
        """Make `offline_updates` updates; ``batch`` holds no row."""
        metrics = {"replay_size": float(len(self.replay))} | self.improve(self.algorithm.offline_updates, step)
        return metrics | {"updates": float(self._updates)}
