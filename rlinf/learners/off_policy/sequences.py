"""Stretches of consecutive transitions from a replay buffer, for policies with a memory.

A stretch begins with the recurrent state that was stored with its first decision. Some decisions before those that are
trained warm the memory up under the newest weights, since the stored state is of older ones ("stored state" and
"burn-in" of R2D2, Kapturowski et al., ICLR 2019).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from rlinf.learners.off_policy.replay_buffer import STARTS, STATE, ReplayBuffer, Transitions


@dataclass(frozen=True, kw_only=True)
class Sequences(Transitions):
    """M stretches of L transitions; the columns of `Transitions` hold them end to end, [M * L, ...].

    Positions without an action (of broken episodes, for example) have the weight 0. Others are weighed so that a
    plain mean over all positions of an update is the mean over those that count.
    """

    starts: Tensor
    """[M, L] bool: an episode begins here."""
    state: Tensor
    """[M, S] recurrent state before the first decision of the warm-up."""
    before: Mapping[str, Tensor]
    """[M, W, ...] observations of the warm-up."""
    before_starts: Tensor
    """[M, W] bool."""

    def rows(self) -> dict[str, Tensor]:
        """Observations [M, L, ...]."""
        return {name: leaf.unflatten(0, self.starts.shape) for name, leaf in self.inputs.items()}

    def to(self, device: torch.device) -> Sequences:
        moved = vars(super().to(device))
        return replace(
            self,
            **moved,
            starts=self.starts.to(device),
            state=self.state.to(device),
            before={name: leaf.to(device) for name, leaf in self.before.items()},
            before_starts=self.before_starts.to(device),
        )

    def split(self, count: int) -> list[Transitions]:
        """Pieces of ``count`` transitions, a number of whole stretches."""
        rows = count // self.starts.shape[1]
        before = {name: leaf.split(rows) for name, leaf in self.before.items()}
        memories = zip(self.starts.split(rows), self.state.split(rows), self.before_starts.split(rows), strict=True)
        return [
            Sequences(
                **vars(part),
                starts=starts,
                state=state,
                before={name: pieces[number] for name, pieces in before.items()},
                before_starts=before_starts,
            )
            for number, (part, (starts, state, before_starts)) in enumerate(
                zip(super().split(count), memories, strict=True)
            )
        ]


@dataclass(frozen=True)
class SequenceSampler:
    """Draws stretches uniformly among all that the buffer holds whole."""

    length: int
    warm_up: int
    gamma: float

    def __call__(
        self, buffer: ReplayBuffer, transitions: int, updates: int, generator: Generator, *, rank: int, size: int
    ) -> Sequences:
        """Stretches with ``transitions`` in each of ``updates``; of them every ``size``-th from ``rank`` on."""
        count = updates * transitions // self.length
        rows, env_index = buffer.windows(count, self.warm_up + self.length, generator)
        warm, trained = rows[rank::size].split([self.warm_up, self.length], dim=1)
        envs = env_index[rank::size, None]
        # Every rank reads which positions of all stretches count: so their weights are those of one rank.
        valid = buffer.column("valid", rows[:, self.warm_up :], env_index[:, None]).to(torch.float32)
        weights = (valid / valid.view(updates, -1).mean(1).repeat_interleave(count // updates)[:, None])[rank::size]
        terminated = buffer.column("terminated", trained, envs)
        return Sequences(
            inputs={name: buffer.column(name, trained, envs).flatten(0, 1) for name in buffer.leaves},
            actions=buffer.column("actions", trained, envs).flatten(0, 1),
            rewards=buffer.column("rewards", trained, envs).flatten(0, 1),
            next_inputs={name: buffer.column(name, trained, envs, after=True).flatten(0, 1) for name in buffer.leaves},
            discounts=torch.where(terminated, 0.0, self.gamma).flatten(0, 1),
            weights=weights.flatten(0, 1),
            starts=buffer.column(STARTS, trained, envs),
            state=buffer.column(STATE, rows[rank::size, :1], envs)[:, 0],
            before={name: buffer.column(name, warm, envs) for name in buffer.leaves},
            before_starts=buffer.column(STARTS, warm, envs),
        )
