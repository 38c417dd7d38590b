"""Hindsight experience replay (Andrychowicz et al., arXiv:1707.01495): transitions as if another goal had been wanted.

Of every k + 1 sampled transitions k get a goal that their own episode achieved. The environment computes their
rewards. The strategies are the paper's: `future` takes what a later step of the episode achieved (this step's own
result included), `final` what its last step did, and `episode` what any of its steps did.

An episode that still goes on has the steps that the buffer holds so far. A truncation is bootstrapped as with real
goals. The environment decides whether a relabelled step terminates; one without an answer keeps its real flag.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Generator, Tensor

from rlinf.base.errors import UserError
from rlinf.data.goals import ACHIEVED, DESIRED, GOALS, GoalEnvironment
from rlinf.learners.off_policy.replay_buffer import ReplayBuffer, Transitions
from rlinf.schema.algorithm import Hindsight

_OTHER_REWARDS = 0.01
"""Share of transitions whose real reward may differ from that of their goal: rounding at a threshold."""


class EpisodeBounds:
    """First and last step of the episode of each transition in a buffer, in steps since the buffer's first one."""

    def __init__(self) -> None:
        self._first = self._last = torch.zeros(0, 0, dtype=torch.int64)
        self._open = torch.zeros(0, dtype=torch.int64)
        self._seen = 0

    def update(self, buffer: ReplayBuffer) -> None:
        """Read what the buffer has got since the last call; with a buffer that was loaded, all of it."""
        ended = buffer.whole_column("ended")
        if self._first.shape != ended.shape:
            self._first, self._last = (torch.zeros(ended.shape, dtype=torch.int64) for _ in range(2))
            self._open, self._seen = torch.zeros(ended.shape[1], dtype=torch.int64), 0
        if self._seen == buffer.added:
            return
        oldest = buffer.added - buffer.timesteps
        begin = max(oldest, int(self._open.min()))
        times = torch.arange(begin, buffer.added)
        rows = buffer.rows_at(times)
        broken, over = ~buffer.whole_column("valid")[rows], ended[rows]
        stops, when = broken | over, times[:, None]
        # The last step is the next end, or the one before the next broken step, or the newest.
        last = torch.where(broken, when - 1, torch.where(over, when, buffer.added - 1))
        self._last[rows] = last.flip(0).cummin(0).values.flip(0)
        before = torch.where(self._open <= begin, begin, self._first[rows[0]])
        after = torch.where(stops, when + 1, before).cummax(0).values
        self._first[rows] = torch.cat([before[None], after[:-1]])
        self._open, self._seen = after[-1], buffer.added

    def of(self, rows: Tensor, env_index: Tensor, oldest: int) -> tuple[Tensor, Tensor]:
        """First and last step [M] of the episodes of transitions; what the buffer no longer holds is left out."""
        return self._first[rows, env_index].clamp(min=oldest), self._last[rows, env_index]


class HindsightSampler:
    """Draws transitions uniformly and gives some of them another goal."""

    def __init__(self, environment: GoalEnvironment, *, strategy: Hindsight, goals: int, gamma: float) -> None:
        """``goals``: relabelled transitions for each that keeps its goal."""
        self._environment, self._strategy, self._gamma = environment, strategy, gamma
        self._share = 1.0 - 1.0 / (goals + 1)
        self._bounds = EpisodeBounds()
        self._verified = False
        self._rewards: list[Tensor] = []

    def __call__(
        self, buffer: ReplayBuffer, transitions: int, updates: int, generator: Generator, *, rank: int, size: int
    ) -> Transitions:
        """``transitions`` for each of ``updates``, the first ones relabelled; every ``size``-th from ``rank`` on.

        Raises UserError if the rewards of the run are not those that the environment computes for its goals.
        """
        count = updates * transitions
        rows, envs = (drawn[rank::size] for drawn in buffer.draw(count, generator))
        chance = torch.rand(count, dtype=torch.float64, generator=generator)[rank::size]
        chosen = (torch.arange(count) % transitions < int(self._share * transitions))[rank::size]
        sampled = buffer.transitions(rows, envs, gamma=self._gamma)
        if not self._verified:
            self._verify(sampled)
        goals = buffer.column(ACHIEVED, self._goal_rows(buffer, rows, envs, chance)[chosen], envs[chosen], after=True)
        return self._relabelled(sampled, chosen, goals)

    def mean_reward(self) -> Tensor:
        """Compute the mean reward of the transitions that were relabelled since the last call."""
        rewards, self._rewards = torch.cat(self._rewards), []
        return rewards.mean()

    def _goal_rows(self, buffer: ReplayBuffer, rows: Tensor, envs: Tensor, chance: Tensor) -> Tensor:
        """Rows [M] of the buffer whose achieved goals the transitions get; ``chance`` [M] is uniform in [0, 1)."""
        self._bounds.update(buffer)
        first, last = self._bounds.of(rows, envs, buffer.added - buffer.timesteps)
        if self._strategy == "final":
            return buffer.rows_at(last)
        if self._strategy == "future":
            first = buffer.times_of(rows)
        return buffer.rows_at(first + (chance * (last - first + 1)).long())

    def _relabelled(self, sampled: Transitions, chosen: Tensor, goals: Tensor) -> Transitions:
        """Transitions with ``goals`` where they are ``chosen`` [M], and with the rewards of these."""
        inputs, following = dict(sampled.inputs), dict(sampled.next_inputs)
        for leaves in (inputs, following):
            leaves[DESIRED] = leaves[DESIRED].clone()
            leaves[DESIRED][chosen] = goals
        result = self._environment.goal_rewards(following[ACHIEVED][chosen].numpy(), goals.numpy())
        rewards, discounts = sampled.rewards.clone(), sampled.discounts
        rewards[chosen] = torch.from_numpy(result.rewards).to(rewards)
        self._rewards.append(rewards[chosen])
        if result.terminated is not None:
            discounts = discounts.clone()
            discounts[chosen] = torch.where(torch.from_numpy(result.terminated), 0.0, self._gamma)
        return replace(sampled, inputs=inputs, next_inputs=following, rewards=rewards, discounts=discounts)

    def _verify(self, sampled: Transitions) -> None:
        """Compare the real rewards with those of the real goals: a wrapper may have changed them."""
        goals = (sampled.next_inputs[name].numpy() for name in GOALS)
        computed = self._environment.goal_rewards(*goals).rewards
        paid = sampled.rewards.numpy()
        differs = ~np.isclose(paid, computed, rtol=1e-3, atol=1e-4)
        if differs.mean() > _OTHER_REWARDS:
            at = int(differs.argmax())
            raise UserError(
                f"algorithm.hindsight: a transition was paid {paid[at]:g}, and the environment's compute_reward gives "
                f"{computed[at]:g} of its goal: relabelled rewards would be of another kind. Take out wrappers that "
                "change rewards, or set algorithm.hindsight: none"
            )
        self._verified = True
