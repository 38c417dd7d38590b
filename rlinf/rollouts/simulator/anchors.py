"""Which state a simulator's decision answers, as a number: what estimators read that compare single decisions."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch

from rlinf.data.granularity import Granularity
from rlinf.rollouts.simulator.episodes import Episode

_PARTS = 1 << 16
"""More than the actions of any chunk."""


def anchor_ids(episodes: Sequence[Episode], levels: Granularity, mask: torch.Tensor) -> torch.Tensor:
    """Return [B, T] int64 for ``mask`` [B, T]: the state at the first position of each reward, -1 elsewhere.

    The state is the one that the reward begins in. Equal observations are equal states. An action of a chunk has
    no observation of its own: its state is that of the chunk and its position in there.
    """
    parts = levels.decision_rewards
    decisions = mask.shape[1] // levels.positions_per_decision
    states = torch.zeros(len(episodes), decisions, parts, dtype=torch.int64)
    for row, episode in enumerate(episodes):
        for decision in range(len(episode.rewards)):
            states[row, decision] = _state(episode, decision) * _PARTS
    states += torch.arange(parts)
    return torch.where(mask, levels.first(states.flatten(1), fill=-1), -1)


def _state(episode: Episode, decision: int) -> int:
    """Compute a checksum of the policy's observation."""
    digest = 0
    for name in sorted(episode.observations):
        digest = zlib.crc32(episode.observations[name][decision].tobytes(), digest)
    return digest
