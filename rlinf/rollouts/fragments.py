"""Fragments: a fixed number of decisions of every lane, several episodes in a row (PPO's layout, and SAC's).

Episodes go on across calls. Each episode has a seed of its own, drawn from (run seed, lane, number of the episode), and
each decision's noise is drawn from (run seed, step, lane): a lane's history does not depend on who runs beside it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from rlinf.models.actor_critic.spaces import Arrays, empty_leaves
from rlinf.rollouts.actor import NoiseStream, SimulatorPolicy, decide
from rlinf.rollouts.history import ActionHistory
from rlinf.rollouts.lanes import Lanes
from rlinf.rollouts.records import EpisodeRecord, EpisodeTally
from rlinf.streams import stream_seed
from rlinf.types import Batch


class EnvFailureError(RuntimeError):
    """Environments failed more often than `env.max_failures` allows."""


@dataclass
class Fragment:
    """A batch part with what else a worker has to tell."""

    batch: Batch
    episodes: list[EpisodeRecord]
    failures: Counter[str]
    """Kind -> count, of this call."""
    env_steps: int


@dataclass
class _Columns:
    """Decisions by lanes [T, N, ...], time first while they are filled."""

    observations: Arrays
    actions: np.ndarray
    rewards: np.ndarray
    """[T, N, K] for chunks of K actions, as the flags and the mask (the actions carried out) are."""
    terminated: np.ndarray
    truncated: np.ndarray
    mask: np.ndarray
    starts: np.ndarray
    """[T, N]: the first decision of an episode."""
    finals: list[tuple[int, int, int, Arrays]] = field(default_factory=list)
    """(decision, lane, action of the chunk, observation after it) of every truncation."""
    next_observations: Arrays | None = None


class FragmentCollector:
    """Drives all lanes of one worker. ``lane_ids`` are their numbers among all lanes of the run."""

    def __init__(
        self,
        lanes: Lanes,
        lane_ids: range,
        *,
        seed: int,
        num_steps: int,
        chunk: int = 1,
        max_failures: int = 100,
        next_observations: bool = False,
    ) -> None:
        self._lanes = lanes
        self._lane_ids = lane_ids
        self._seed = seed
        self._num_steps = num_steps
        self._chunk = chunk
        self._max_failures = max_failures
        self._keep_next = next_observations
        count = lanes.num_lanes
        self._all = list(range(count))
        self._episode = np.full(count, -1, dtype=np.int64)
        self._fresh = np.ones(count, dtype=bool)  # the next decision is the first of its episode
        self._tally = EpisodeTally(count)
        self._history = ActionHistory(count)
        self._state: np.ndarray | None = None
        self._total_failures = 0
        self._failures: Counter[str] = Counter()

    def collect(self, policy: SimulatorPolicy, step: int, version: int) -> Fragment:
        """The fragment of optimiser step ``step``: ``num_steps`` decisions of every lane under ``policy``."""
        self._failures = Counter()
        if self._state is None:
            self._state = np.zeros((len(self._all), policy.state_size), dtype=np.float32)
            self._begin(self._all)
        columns = self._allocate(policy)
        noise = np.stack(
            [
                NoiseStream(policy.noise_kind, policy.noise_size, self._seed, "act", step, lane).draw(self._num_steps)
                for lane in self._lane_ids
            ],
            axis=1,
        )
        before = self._state.copy()
        episodes: list[EpisodeRecord] = []
        env_steps = 0
        for slot in range(self._num_steps):
            env_steps += self._decide(policy, columns, slot, noise[slot], episodes)
        batch = self._batch(policy, columns, before, version)
        return Fragment(batch, episodes, self._failures, env_steps)

    def _allocate(self, policy: SimulatorPolicy) -> _Columns:
        lead = (self._num_steps, len(self._all))
        parts = (*lead, self._chunk)
        space = self._lanes.observation_space
        return _Columns(
            observations=empty_leaves(space, lead),
            actions=np.zeros((*lead, *policy.action_shape), dtype=policy.action_dtype),
            rewards=np.zeros(parts),
            terminated=np.zeros(parts, dtype=bool),
            truncated=np.zeros(parts, dtype=bool),
            mask=np.zeros(parts, dtype=bool),
            starts=np.zeros(lead, dtype=bool),
            next_observations=empty_leaves(space, lead) if self._keep_next else None,
        )

    def _decide(
        self, policy: SimulatorPolicy, columns: _Columns, slot: int, noise: np.ndarray, episodes: list[EpisodeRecord]
    ) -> int:
        """One decision of every lane, its chunk of steps, and the resets that follow. Returns the steps made."""
        assert self._state is not None
        for name, leaf in self._lanes.observations.items():
            columns.observations[name][slot] = leaf
        columns.starts[slot] = self._fresh
        if self._state.size:
            self._state[self._fresh] = 0.0
        self._fresh[:] = False
        actions, self._state = decide(policy, self._lanes.observations, self._state, noise)
        columns.actions[slot] = actions
        env_actions = policy.env_actions(actions)
        self._history.append(env_actions)
        if self._chunk == 1:
            return self._advance(columns, (slot, 0), self._all, env_actions, episodes)
        alive, steps = list(self._all), 0
        for part in range(self._chunk):
            steps += self._advance(columns, (slot, part), alive, env_actions[alive, part], episodes)
            alive = [lane for lane in alive if not self._fresh[lane]]
            if not alive:
                break
        return steps

    def _advance(
        self,
        columns: _Columns,
        place: tuple[int, int],
        lanes: list[int],
        actions: np.ndarray,
        episodes: list[EpisodeRecord],
    ) -> int:
        """One environment step of ``lanes``; ends, failures and the observation that follows are entered.

        ``place``: the decision, and the number of this action in its chunk.
        """
        result = self._lanes.step(lanes, actions)
        slot, part = place
        index = np.asarray(lanes)
        if result.idle is not None and result.idle.any():
            self._fresh[index[result.idle]] = True
        acted = np.ones(len(lanes), dtype=bool) if result.idle is None else ~result.idle
        acted[list(result.failed)] = False
        columns.mask[slot, index[acted], part] = True
        columns.rewards[slot, index[acted], part] = result.rewards[acted]
        self._tally.add(index[acted], result.rewards[acted], result.success[acted])
        if columns.next_observations is not None:
            for name, leaf in self._lanes.observations.items():
                columns.next_observations[name][slot, index] = leaf[index]
        done = (result.terminated | result.truncated) & acted
        if not done.any() and not result.failed:
            return int(acted.sum())
        over: list[int] = []
        for position in np.nonzero(done)[0].tolist():
            lane = lanes[position]
            columns.terminated[slot, lane, part] = result.terminated[position]
            if result.truncated[position] and not result.terminated[position]:
                columns.truncated[slot, lane, part] = True
                final = {name: leaf[lane].copy() for name, leaf in self._lanes.observations.items()}
                columns.finals.append((slot, lane, part, final))
            episodes.append(self._tally.finish(lane, self._lane_ids[lane], bool(result.success[position])))
            over.append(lane)
        for position, kind in result.failed.items():
            self._drop(columns, place, lanes[position], kind)
            over.append(lanes[position])
        self._begin(over)
        return int(acted.sum())

    def _drop(self, columns: _Columns, place: tuple[int, int], lane: int, kind: str) -> None:
        """Takes the broken episode's slots out of the batch and the environment out of service."""
        slot, part = place
        starts = np.nonzero(columns.starts[: slot + 1, lane])[0]
        first = int(starts[-1]) if len(starts) else 0
        columns.mask[first : slot + 1, lane] = False
        columns.truncated[slot, lane, part] = True
        columns.rewards[first : slot + 1, lane] = 0.0
        self._tally.clear(lane)
        self._fail(lane, kind)

    def _fail(self, lane: int, kind: str) -> None:
        self._failures[kind] += 1
        self._total_failures += 1
        if self._total_failures > self._max_failures:
            raise EnvFailureError(
                f"environments failed {self._total_failures} times (last: {kind!r} in env {self._lane_ids[lane]}), "
                f"more than env.max_failures allows. The last one:\n{self._lanes.last_failure}"
            )
        self._lanes.restart(lane)

    def _begin(self, lanes: list[int]) -> None:
        """A new episode in each of ``lanes``; one that can not even be reset fails and is tried with the next seed."""
        while lanes:
            self._episode[lanes] += 1
            self._fresh[lanes] = True
            self._history.begin(lanes)
            failed = self._lanes.reset(lanes, [self._episode_seed(lane) for lane in lanes])
            for position, kind in failed.items():
                self._fail(lanes[position], kind)
            lanes = [lanes[position] for position in failed]

    def _episode_seed(self, lane: int) -> int:
        return stream_seed(self._seed, "episode", self._lane_ids[lane], int(self._episode[lane]))

    def _batch(self, policy: SimulatorPolicy, columns: _Columns, before: np.ndarray, version: int) -> Batch:
        inputs = {name: _rows(leaf) for name, leaf in columns.observations.items()}
        if columns.next_observations is not None:
            for name, leaf in columns.next_observations.items():
                inputs[name.replace("observation", "next_observation", 1)] = _rows(leaf)
        if policy.state_size:
            inputs["recurrent_state"] = torch.from_numpy(before)
            inputs["episode_start"] = _rows(columns.starts)
        slots, executed = policy.granularity, _rows(columns.mask)
        if self._chunk > 1:
            inputs["executed"] = executed
        actions, mask = _rows(columns.actions), slots.mask(executed)
        with torch.no_grad():
            said = policy.evaluate(inputs, actions, mask)
        return Batch(
            inputs=inputs,
            actions=actions,
            mask=mask,
            logprobs=said.logprobs,
            rewards=slots.first(slots.rewards(_rows(columns.rewards), executed)).to(torch.float32),
            group_ids=torch.tensor(list(self._lane_ids), dtype=torch.int64),
            policy_version=torch.full(mask.shape, version, dtype=torch.int32),
            terminated=slots.spread(slots.flags(_rows(columns.terminated))),
            truncated=slots.spread(slots.flags(_rows(columns.truncated))),
            values=said.values,
            bootstrap_values=None if said.values is None else self._bootstrap(policy, columns, inputs),
            decision_slots=slots.decision_slots,
            reward_slots=slots.reward_slots,
        )

    def _bootstrap(self, policy: SimulatorPolicy, columns: _Columns, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Values [N, slots] of the observations after truncated slots and after the last slot; 0 elsewhere."""
        rewards = policy.granularity.decision_rewards
        places = [(lane, slot, min(part, rewards - 1)) for slot, lane, part, _ in columns.finals]
        finals = len(places)
        places += [(lane, self._num_steps - 1, rewards - 1) for lane in self._all]
        leaves: dict[str, torch.Tensor] = {}
        for name, newest in self._lanes.observations.items():
            kept = [final[name] for _, _, _, final in columns.finals]
            leaves[name] = torch.from_numpy(np.concatenate([np.stack(kept), newest]) if kept else newest.copy())
        rows, slots, parts = torch.tensor(places).unbind(1)
        shape = torch.Size((len(self._all), self._num_steps))
        state = policy.states(inputs, shape) if policy.state_size else torch.zeros(shape.numel(), 0)
        values = policy.values(leaves, state.unflatten(0, shape)[rows, slots])
        result = torch.zeros(*shape, rewards)
        result[:, -1, -1] = values[finals:]
        # Where a lane was cut in its last slot, its final observation counts, not the first one of the new episode.
        result[rows[:finals], slots[:finals], parts[:finals]] = values[:finals]
        return policy.granularity.spread(result.flatten(1))

    def skip_episodes(self, count: int) -> None:
        """Leaves so many episode numbers out, before the first episode."""
        self._episode += count

    def state_dict(self) -> dict[str, Any]:
        """Enough to go on bit for bit, without the environments themselves: they are rebuilt by repeating actions."""
        return {
            "episode": self._episode.copy(),
            "actions": self._history.since_reset(),
            "fresh": self._fresh.copy(),
            "recurrent_state": None if self._state is None else self._state.copy(),
            "totals": self._tally.totals.copy(),
            "lengths": self._tally.lengths.copy(),
            "succeeded": self._tally.succeeded.copy(),
            "failures": self._total_failures,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Rebuilds every lane: reset with the episode's seed, then the recorded actions again."""
        self._total_failures = state["failures"]
        if state["recurrent_state"] is None:
            return
        self._episode[:] = state["episode"]
        self._state = state["recurrent_state"].copy()
        self._history.begin(self._all)
        self._lanes.reset(self._all, [self._episode_seed(lane) for lane in self._all])
        self._history.load(state["actions"])
        for lane, actions in enumerate(state["actions"]):
            for action in actions:
                for part in action if self._chunk > 1 else [action]:
                    self._lanes.step([lane], part[None])
        self._fresh[:] = state["fresh"]
        self._tally.totals[:] = state["totals"]
        self._tally.lengths[:] = state["lengths"]
        self._tally.succeeded[:] = state["succeeded"]


def _rows(slots_by_lanes: np.ndarray) -> torch.Tensor:
    """[T, N, ...] to a contiguous tensor [N, T, ...]."""
    return torch.from_numpy(np.ascontiguousarray(np.swapaxes(slots_by_lanes, 0, 1)))
