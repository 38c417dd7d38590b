"""The rollout of a run that learns from recorded transitions alone: no environment steps."""

from __future__ import annotations

from typing import Any

import torch

from rlinf.data.batch import Batch
from rlinf.data.inputs import ObservationInputs
from rlinf.data.messages import Metrics


class OfflineRollout:
    """An `interfaces.Rollout` whose batches hold no row."""

    def collect(self, step: int, *, round: int = 0) -> tuple[Batch, Metrics]:
        """Return a batch without rows, at once."""
        nothing = torch.zeros(0, 0)
        batch = Batch(
            inputs=ObservationInputs({}),
            actions=nothing,
            mask=nothing.bool(),
            rollout_logprobs=nothing,
            rewards=torch.zeros(0),
            group_ids=torch.zeros(0, dtype=torch.int64),
            policy_version=nothing.int(),
        )
        return batch, {"rollout/env_steps": 0.0, "rollout/env_steps_total": 0.0}

    def state_dict(self) -> dict[str, Any]:
        """There is no state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """There is nothing to restore."""
