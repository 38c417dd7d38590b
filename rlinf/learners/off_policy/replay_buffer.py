"""Replay buffer: the newest transitions of every sub-environment, with n-step returns that stop at ends.

They are sampled uniformly, or by how wrong their estimates were when they were last seen (`priorities`).

Time by sub-environments [C, N, ...], as a ring over time: the successor of a transition is the next row of its
sub-environment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from rlinf.data.batch import Batch
from rlinf.data.inputs import ObservationInputs
from rlinf.learners.off_policy.priorities import Priorities

_COPIED_BYTES = 64 << 20
_NEXT = "next_"
"""Before a leaf's name: its column after the step."""
STARTS, STATE = "starts", "state"
"""Columns of policies with a memory: whether an episode begins with a decision, and the recurrent state before it."""


@dataclass(frozen=True)
class Transitions:
    """M sampled transitions."""

    inputs: dict[str, Tensor]
    """[M, ...] per observation leaf."""
    actions: Tensor
    """[M, A]."""
    rewards: Tensor
    """[M] sum of gamma^k r_k over up to n decisions."""
    next_inputs: dict[str, Tensor]
    """[M, ...] observation after the last of those steps (the final one, where the episode ended there)."""
    discounts: Tensor
    """[M] gamma^decisions, and 0 where the episode terminated: what the bootstrapped value is multiplied with."""
    weights: Tensor | None = None
    """[M] of their losses, where they were not drawn uniformly."""
    indices: Tensor | None = None
    """[M] int64, on the CPU: where they lie in the buffer; likewise."""

    def to(self, device: torch.device) -> Transitions:
        return Transitions(
            inputs={name: leaf.to(device) for name, leaf in self.inputs.items()},
            actions=self.actions.to(device),
            rewards=self.rewards.to(device),
            next_inputs={name: leaf.to(device) for name, leaf in self.next_inputs.items()},
            discounts=self.discounts.to(device),
            weights=None if self.weights is None else self.weights.to(device),
            indices=self.indices,
        )

    def split(self, count: int) -> list[Transitions]:
        """Consecutive pieces of ``count`` transitions; nothing is copied."""
        inputs = {name: leaf.split(count) for name, leaf in self.inputs.items()}
        following = {name: leaf.split(count) for name, leaf in self.next_inputs.items()}
        plain = zip(self.actions.split(count), self.rewards.split(count), self.discounts.split(count), strict=True)
        weights = None if self.weights is None else self.weights.split(count)
        indices = None if self.indices is None else self.indices.split(count)
        return [
            Transitions(
                inputs={name: parts[piece] for name, parts in inputs.items()},
                actions=actions,
                rewards=rewards,
                next_inputs={name: parts[piece] for name, parts in following.items()},
                discounts=discounts,
                weights=None if weights is None else weights[piece],
                indices=None if indices is None else indices[piece],
            )
            for piece, (actions, rewards, discounts) in enumerate(plain)
        ]


class ReplayBuffer:
    """``capacity`` transitions over all sub-environments. Larger than ``memory_bytes``, its columns are files in
    ``folder``."""

    def __init__(
        self,
        capacity: int,
        *,
        folder: Path | None = None,
        memory_bytes: int = 2 << 30,
        priority_exponent: float = 0.0,
    ) -> None:
        """``priority_exponent``: 0 samples uniformly."""
        self.capacity = capacity
        self._priority_exponent = priority_exponent
        self._priorities: Priorities | None = None
        self._folder = folder
        self._memory_bytes = memory_bytes
        self._columns: dict[str, Tensor] = {}
        self._rows = 0
        self._head = 0
        self._filled = 0
        self.added = 0
        """Timesteps of each sub-environment that arrived; those of a loaded buffer are the ones it held."""

    def __len__(self) -> int:
        """Transitions held, those of broken episodes included."""
        return self._filled * (self._columns["rewards"].shape[1] if self._columns else 0)

    def add(self, batch: Batch, states: Tensor | None = None) -> None:
        """Store the timesteps [N, T] of a fragment whose inputs hold ``next_observations`` too.

        ``states`` [N, T, S]: a policy's recurrent states before its decisions, if it has any.
        """
        arriving = _columns(batch, states)
        if not self._columns:
            self._allocate(arriving)
        for timestep in range(batch.num_positions):
            for name, column in arriving.items():
                self._columns[name][self._head] = column[:, timestep]
            if self._priorities is not None:
                valid = batch.mask[:, timestep].numpy()
                self._priorities.add(self._head * len(valid) + np.arange(len(valid)), valid)
            self._head = (self._head + 1) % self._rows
            self._filled = min(self._filled + 1, self._rows)
        self.added += batch.num_positions

    def sample(
        self,
        count: int,
        *,
        gamma: float,
        n_step: int = 1,
        priority_correction: float = 0.0,
        generator: Generator | None = None,
        rank: int = 0,
        size: int = 1,
    ) -> Transitions:
        """``count`` transitions, with replacement; of them every ``size``-th from ``rank`` on.

        Each is equally likely, or as likely as its priority makes it.
        """
        num_envs = self._columns["rewards"].shape[1]
        oldest = self._head - self._filled  # ages count from here; negative indices wrap by the modulus
        weights = indices = None
        if self._priorities is None:
            age, env_index = (drawn[rank::size] for drawn in self._draw(count, num_envs, generator))
        else:
            drawn = self._priorities.draw(count, generator)
            weights = self._priorities.weights(drawn, len(self), priority_correction)[rank::size]
            indices = drawn[rank::size]
            age, env_index = (indices // num_envs - oldest) % self._rows, indices % num_envs
        first = (oldest + age) % self._rows
        rewards = self._columns["rewards"][first, env_index].clone()
        last, discounts = first, torch.full((len(first),), gamma)
        if n_step > 1:
            over = self._columns["ended"][first, env_index]
            for step in range(1, n_step):
                later = (oldest + age + step) % self._rows
                # The newest row has no successor yet; a shorter return is as right.
                going = ~over & (age + step < self._filled) & self._columns["valid"][later, env_index]
                rewards = torch.where(
                    going, rewards + gamma**step * self._columns["rewards"][later, env_index], rewards
                )
                last = torch.where(going, later, last)
                discounts = torch.where(going, discounts * gamma, discounts)
                over = ~going | self._columns["ended"][later, env_index]
        terminated = self._columns["terminated"][last, env_index]
        return Transitions(
            inputs=self._leaves("", first, env_index),
            actions=self._columns["actions"][first, env_index],
            rewards=rewards,
            next_inputs=self._leaves(_NEXT, last, env_index),
            discounts=torch.where(terminated, 0.0, discounts),
            weights=weights,
            indices=indices,
        )

    def prioritise(self, indices: Tensor, errors: Tensor) -> None:
        """Update the priorities from the absolute errors [M] of the transitions at ``indices`` [M].

        They come from :meth:`sample`. Only if transitions are sampled by priority."""
        assert self._priorities is not None
        self._priorities.update(indices, errors)

    def _draw(self, count: int, num_envs: int, generator: Generator | None) -> tuple[Tensor, Tensor]:
        """Ages (0 is the oldest row) and sub-environments of valid transitions; invalid ones are drawn again."""
        flat = torch.randint(self._filled * num_envs, (count,), generator=generator)
        while True:
            age, env_index = flat // num_envs, flat % num_envs
            valid = self._columns["valid"][(self._head - self._filled + age) % self._rows, env_index]
            if bool(valid.all()):
                return age, env_index
            again = ~valid
            flat[again] = torch.randint(self._filled * num_envs, (int(again.sum()),), generator=generator)

    def windows(self, count: int, length: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Rows [count, length] of consecutive timesteps, and their sub-environments [count], with replacement.

        Raises ValueError while the buffer holds fewer timesteps.
        """
        if self._filled < length:
            raise ValueError(f"the replay buffer holds {self._filled} timesteps of each environment, not {length}")
        num_envs, starts = self._columns["rewards"].shape[1], self._filled - length + 1
        flat = torch.randint(starts * num_envs, (count,), generator=generator)
        ages = (flat // num_envs)[:, None] + torch.arange(length)
        return (self._head - self._filled + ages) % self._rows, flat % num_envs

    def column(self, name: str, rows: Tensor, env_index: Tensor, *, after: bool = False) -> Tensor:
        """Entries of a column at ``rows`` and sub-environments of the same shape; ``after``: of the observation that
        follows."""
        return self._columns[(_NEXT if after else "") + name][rows, env_index]

    @property
    def leaves(self) -> list[str]:
        """Names of the observation's leaves."""
        return [name for name in self._columns if _NEXT + name in self._columns]

    @property
    def timesteps(self) -> int:
        """Timesteps held of each sub-environment."""
        return self._filled

    def whole_column(self, name: str) -> Tensor:
        """Return a column [C, N, ...] in the order of its rows; it must not be changed."""
        return self._columns[name]

    def rows_at(self, times: Tensor) -> Tensor:
        """Find the rows of timesteps that are counted as :attr:`added` counts them."""
        return (self._head - self.added + times) % self._rows

    def times_of(self, rows: Tensor) -> Tensor:
        """Find the timesteps that rows hold, counted so."""
        return self.added - 1 - (self._head - 1 - rows) % self._rows

    def draw(self, count: int, generator: Generator | None) -> tuple[Tensor, Tensor]:
        """Draw rows and sub-environments [count] of valid transitions, with replacement."""
        age, env_index = self._draw(count, self._columns["rewards"].shape[1], generator)
        return (self._head - self._filled + age) % self._rows, env_index

    def transitions(self, rows: Tensor, env_index: Tensor, *, gamma: float) -> Transitions:
        """Read the transitions of single steps at ``rows`` and ``env_index`` [M]."""
        terminated = self._columns["terminated"][rows, env_index]
        return Transitions(
            inputs=self._leaves("", rows, env_index),
            actions=self._columns["actions"][rows, env_index],
            rewards=self._columns["rewards"][rows, env_index],
            next_inputs=self._leaves(_NEXT, rows, env_index),
            discounts=torch.where(terminated, 0.0, gamma),
        )

    def _leaves(self, prefix: str, rows: Tensor, num_envs: Tensor) -> dict[str, Tensor]:
        return {name: self._columns[prefix + name][rows, num_envs] for name in self.leaves}

    def _allocate(self, arriving: Mapping[str, Tensor]) -> None:
        num_envs = arriving["rewards"].shape[0]
        self._rows = max(1, self.capacity // num_envs)
        if self._priority_exponent > 0:
            self._priorities = Priorities(self._rows * num_envs, self._priority_exponent)
        sizes = {
            name: self._rows * num_envs * math.prod(c.shape[2:]) * c.element_size() for name, c in arriving.items()
        }
        on_disk = self._folder is not None and sum(sizes.values()) > self._memory_bytes
        for name, column in arriving.items():
            shape = (self._rows, num_envs, *column.shape[2:])
            if on_disk and self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
                flat = torch.from_file(
                    str(self._folder / f"{name}.bin"), shared=True, size=math.prod(shape), dtype=column.dtype
                )
                self._columns[name] = flat.view(shape)
            else:
                self._columns[name] = torch.zeros(shape, dtype=column.dtype)

    def save(self, folder: Path) -> None:
        """Write the rows held, oldest first, a file per column: a buffer that is larger than memory can be saved."""
        columns = {name: (column.dtype, tuple(column.shape[1:])) for name, column in self._columns.items()}
        state: dict[str, Any] = {"head": self._head, "filled": self._filled, "columns": columns}
        if self._priorities is not None:
            size = self._rows * self._columns["rewards"].shape[1]
            values = torch.from_numpy(self._priorities.values(size))
            state |= {"priorities": values, "largest_priority": self._priorities.largest}
        torch.save(state, folder / "replay.pt")
        for name, column in self._columns.items():
            with (folder / f"replay_{name}.bin").open("wb") as file:
                for rows in self._order().split(_rows_at_once(column)):
                    column[rows].numpy().tofile(file)

    def load(self, folder: Path) -> None:
        """Continues with the transitions that :meth:`save` wrote: the same will be sampled again."""
        saved: dict[str, Any] = torch.load(folder / "replay.pt", weights_only=True)
        if not saved["columns"]:
            return
        self._columns = {}
        self._allocate({n: torch.empty(shape[0], 1, *shape[1:], dtype=d) for n, (d, shape) in saved["columns"].items()})
        self._head, self._filled = saved["head"], saved["filled"]
        self.added = self._filled
        if self._priorities is not None:
            self._priorities.load(saved["priorities"].numpy(), saved["largest_priority"])
        for name, column in self._columns.items():
            with (folder / f"replay_{name}.bin").open("rb") as file:
                for rows in self._order().split(_rows_at_once(column)):
                    shape = (len(rows), *column.shape[1:])
                    values = np.fromfile(file, dtype=column[:0].numpy().dtype, count=math.prod(shape))
                    column[rows] = torch.from_numpy(values).view(shape)

    def _order(self) -> Tensor:
        """Return the rows held, oldest first."""
        return (torch.arange(self._filled) + self._head - self._filled) % max(self._rows, 1)


def _rows_at_once(column: Tensor) -> int:
    """How many rows are copied together on the way to a file."""
    return max(1, _COPIED_BYTES // (column[:1].numel() * column.element_size()))


def _columns(batch: Batch, states: Tensor | None) -> dict[str, Tensor]:
    """[N, T, ...] per column."""
    assert batch.terminated is not None
    assert batch.truncated is not None
    inputs = ObservationInputs.of(batch.inputs)
    return {
        **inputs.observations,
        **{_NEXT + name: leaf for name, leaf in inputs.next_observations.items()},
        "actions": batch.actions,
        "rewards": batch.rewards,
        "terminated": batch.terminated,
        "ended": batch.terminated | batch.truncated,
        "valid": batch.mask,
        **({} if states is None or inputs.episode_starts is None else {STARTS: inputs.episode_starts, STATE: states}),
    }
