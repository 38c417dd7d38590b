"""Fragments: a fixed number of decisions of each sub-environment, several episodes in a row (for PPO and SAC).

Episodes go on across calls. Each episode has a seed of its own, drawn from (run seed, sub-environment, number
of the episode). Each decision's noise is drawn from (run seed, rollout, sub-environment). So a
sub-environment's history does not depend on which others run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from rlinf.base.random_streams import numpy_generator, stream_seed
from rlinf.data.batch import Batch
from rlinf.data.granularity import Granularity
from rlinf.data.inputs import ObservationInputs
from rlinf.data.messages import PolicyOutput
from rlinf.data.spaces import Arrays, empty_leaves
from rlinf.models.policy_requests import Decision, PolicyFacts, PolicyRequest, RolloutCoroutine
from rlinf.rollouts.simulator.action_history import StagedHistory
from rlinf.rollouts.simulator.failures import Attempt, FailureCount
from rlinf.rollouts.simulator.noise import NoiseStream
from rlinf.rollouts.simulator.records import EpisodeRecord, EpisodeTally, RolloutPart
from rlinf.rollouts.vec_env.mixture import ONE_TASK, Mixture
from rlinf.rollouts.vec_env.vec_env import VecEnv


@dataclass
class Columns:
    """Decisions by sub-environments [T, N, ...], time first while they are filled."""

    noise: np.ndarray
    """[ceil(T / hold), N, noise_size]."""
    hold: int
    """Decisions that share their noise."""
    before: np.ndarray
    """[N, S]: recurrent states before the first decision."""
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
    """(decision, sub-environment, action of the chunk, observation after it) of every truncation."""
    next_observations: Arrays | None = None
    outputs: list[list[PolicyOutput]] = field(default_factory=list)
    """Of each stage, decision by decision, where the policy tells it."""
    episodes: list[EpisodeRecord] = field(default_factory=list)
    env_steps: int = 0


class FragmentCollector:
    """Drives all sub-environments of one worker. ``global_indices`` are their numbers among all sub-environments of
    the run."""

    def __init__(
        self,
        vec_env: VecEnv,
        global_indices: range,
        *,
        seed: int,
        num_steps: int,
        chunk: int = 1,
        max_failures: int = 100,
        env_id: str = "the environment",
        next_observations: bool = False,
        stages: int = 1,
        mixture: Mixture = ONE_TASK,
        num_envs: int = 0,
    ) -> None:
        self._vec_env = vec_env
        self._global_indices = global_indices
        self._seed = seed
        self._num_steps = num_steps
        self._chunk = chunk
        self._keep_next = next_observations
        self._mixture, self._num_envs = mixture, num_envs
        count = vec_env.num_envs
        self.failure_count = FailureCount(max_failures, count, env_id)
        self._all = list(range(count))
        self._episode = np.full(count, -1, dtype=np.int64)
        self._fresh = np.ones(count, dtype=bool)  # the next decision is the first of its episode
        self._tally = EpisodeTally(count)
        self.stages = [part.tolist() for part in np.array_split(np.arange(count), stages)]
        """The sub-environments that decide together; each stage goes at its own pace."""
        self._history = StagedHistory(self.stages)
        self._state: np.ndarray | None = None
        self._failures: Counter[str] = Counter()

    def open(self, policy: PolicyFacts, key: tuple[int, ...]) -> Columns:
        """Room for the decisions of the rollout ``key`` (see `streams.rollout_key`), and the noise for them."""
        self._failures = Counter()
        if self._state is None:
            self._state = np.zeros((len(self._all), policy.state_size), dtype=np.float32)
            self._begin(self._all)
        streams = (
            NoiseStream(policy.noise_kind, policy.noise_size, self._seed, "act", *key, env_index)
            for env_index in self._global_indices
        )
        hold = policy.noise_hold if policy.noise_hold > 0 else self._num_steps
        draws = math.ceil(self._num_steps / hold)
        lead = (self._num_steps, len(self._all))
        parts = (*lead, self._chunk)
        space = self._vec_env.observation_space
        return Columns(
            noise=np.stack([stream.draw(draws) for stream in streams], axis=1),
            hold=hold,
            before=self._state.copy(),
            observations=empty_leaves(space, lead),
            actions=np.zeros((*lead, *policy.action_shape), dtype=policy.action_dtype),
            rewards=np.zeros(parts),
            terminated=np.zeros(parts, dtype=bool),
            truncated=np.zeros(parts, dtype=bool),
            mask=np.zeros(parts, dtype=bool),
            starts=np.zeros(lead, dtype=bool),
            next_observations=empty_leaves(space, lead) if self._keep_next else None,
            outputs=[[] for _ in self.stages],
        )

    def fill(self, columns: Columns, stage: int) -> RolloutCoroutine[None]:
        """Make all decisions of the sub-environments of one stage, each with its steps and the resets that follow."""
        assert self._state is not None
        env_indices = self.stages[stage]
        # With a single stage everything is taken as it lies, which spares cheap environments most of their cost.
        mine: Any = slice(None) if len(self.stages) == 1 else np.asarray(env_indices)
        for timestep in range(self._num_steps):
            observations = {name: leaf[mine] for name, leaf in self._vec_env.observations.items()}
            for name, leaf in observations.items():
                columns.observations[name][timestep, mine] = leaf
            fresh = self._fresh[mine]
            columns.starts[timestep, mine] = fresh
            state = self._state[mine]
            if state.size:
                state = np.where(fresh[:, None], np.float32(0.0), state)
            self._fresh[mine] = False
            noise = columns.noise[timestep // columns.hold, mine]
            decision: Decision = yield PolicyRequest("decide", (observations, state, noise))
            columns.actions[timestep, mine], self._state[mine] = decision.actions, decision.state
            if decision.output is not None:
                columns.outputs[stage].append(decision.output)
            actions = decision.env_actions
            self._history.append(stage, actions)
            if self._chunk == 1:
                self._advance(columns, (timestep, 0), env_indices, actions)
                continue
            alive = list(range(len(env_indices)))
            for part in range(self._chunk):
                self._advance(columns, (timestep, part), [env_indices[at] for at in alive], actions[alive, part])
                alive = [at for at in alive if not self._fresh[env_indices[at]]]
                if not alive:
                    break

    def close(self, policy: PolicyFacts, columns: Columns, version: int) -> RolloutCoroutine[RolloutPart]:
        """Build the batch, once all stages are filled."""
        batch = yield from self._batch(policy, columns, version)
        newest = self._vec_env.last_failure
        return RolloutPart(batch, columns.episodes, self._failures, columns.env_steps, last_failure=newest)

    def _advance(
        self,
        columns: Columns,
        chunk_position: tuple[int, int],
        env_indices: list[int],
        actions: np.ndarray,
    ) -> None:
        """Make one environment step of ``env_indices``; enter ends, failures and the observation that follows.

        ``chunk_position``: the decision, and the number of this action in its chunk.
        """
        result = self._vec_env.step(env_indices, actions)
        timestep, part = chunk_position
        index = np.asarray(env_indices)
        if result.idle is not None and result.idle.any():
            self._fresh[index[result.idle]] = True
        acted = np.ones(len(env_indices), dtype=bool) if result.idle is None else ~result.idle
        acted[list(result.failed)] = False
        columns.mask[timestep, index[acted], part] = True
        columns.rewards[timestep, index[acted], part] = result.rewards[acted]
        self._tally.add(index, result, acted)
        if columns.next_observations is not None:
            for name, leaf in self._vec_env.observations.items():
                columns.next_observations[name][timestep, index] = leaf[index]
        done = (result.terminated | result.truncated) & acted
        stepped = int(acted.sum())
        columns.env_steps += stepped
        self.failure_count.went_well("step", stepped)
        if not done.any() and not result.failed:
            return
        over: list[int] = []
        for position in np.nonzero(done)[0].tolist():
            env_index = env_indices[position]
            columns.terminated[timestep, env_index, part] = result.terminated[position]
            if result.truncated[position] and not result.terminated[position]:
                columns.truncated[timestep, env_index, part] = True
                final = {name: leaf[env_index].copy() for name, leaf in self._vec_env.observations.items()}
                columns.finals.append((timestep, env_index, part, final))
            columns.episodes.append(
                self._tally.finish(
                    env_index,
                    self._global_indices[env_index],
                    bool(result.success[position]),
                    self._mixture.name(self._episode_seed(env_index)),
                )
            )
            over.append(env_index)
        for position, kind in result.failed.items():
            self._drop(columns, chunk_position, env_indices[position], kind)
            over.append(env_indices[position])
        self._begin(over)

    def _drop(self, columns: Columns, chunk_position: tuple[int, int], env_index: int, kind: str) -> None:
        """Take the broken episode's timesteps out of the batch and the environment out of service."""
        timestep, part = chunk_position
        starts = np.nonzero(columns.starts[: timestep + 1, env_index])[0]
        first = int(starts[-1]) if len(starts) else 0
        columns.mask[first : timestep + 1, env_index] = False
        columns.truncated[timestep, env_index, part] = True
        columns.rewards[first : timestep + 1, env_index] = 0.0
        self._tally.clear(env_index)
        self._fail("step", env_index, kind)

    def _fail(self, attempt: Attempt, env_index: int, kind: str) -> None:
        self._failures[kind] += 1
        name = f"environment {self._global_indices[env_index]}"
        self.failure_count.add(attempt, kind, self._vec_env.last_failure, name)
        self._vec_env.restart(env_index)

    def _begin(self, env_indices: list[int]) -> None:
        """Begin an episode in each of ``env_indices``; one that cannot be reset fails and is tried with the next
        seed."""
        while env_indices:
            self._episode[env_indices] += 1
            self._fresh[env_indices] = True
            self._history.begin(env_indices)
            failed = self._vec_env.reset(env_indices, [self._episode_seed(env_index) for env_index in env_indices])
            self.failure_count.went_well("reset", len(env_indices) - len(failed))
            for position, kind in failed.items():
                self._fail("reset", env_indices[position], kind)
            env_indices = [env_indices[position] for position in failed]

    def _episode_seed(self, env_index: int) -> int:
        """Draw the seed of the sub-environment's episode now. The n-th episodes of all have each task by its weight."""
        env, number = self._global_indices[env_index], int(self._episode[env_index])
        seed = stream_seed(self._seed, "episode", env, number)
        if not self._mixture.names:
            return seed
        seeds = [seed] * self._num_envs
        return self._mixture.drawn(seeds, numpy_generator(self._seed, "episode task", number))[env]

    def _batch(self, policy: PolicyFacts, columns: Columns, version: int) -> RolloutCoroutine[Batch]:
        timesteps, executed = policy.granularity, _rows(columns.mask)
        inputs = ObservationInputs(
            {name: _rows(leaf) for name, leaf in columns.observations.items()},
            {name: _rows(leaf) for name, leaf in (columns.next_observations or {}).items()},
            recurrent_state=torch.from_numpy(columns.before) if policy.state_size else None,
            episode_starts=_rows(columns.starts) if policy.state_size else None,
            executed=executed if self._chunk > 1 else None,
        )
        actions, mask = _rows(columns.actions), timesteps.mask(executed)
        if policy.tells:
            output = _joined(timesteps, columns.outputs, executed)
        else:
            output = yield PolicyRequest("evaluate", (inputs, actions, mask))
        bootstrap = None
        if output.values is not None:
            bootstrap = yield from self._bootstrap(policy, columns, inputs)
        return Batch(
            inputs=inputs,
            actions=actions,
            mask=mask,
            rollout_logprobs=output.logprobs,
            rewards=timesteps.first(timesteps.rewards(_rows(columns.rewards), executed)).to(torch.float32),
            group_ids=torch.tensor(list(self._global_indices), dtype=torch.int64),
            policy_version=torch.full(mask.shape, version, dtype=torch.int32),
            terminated=timesteps.spread(timesteps.reward_mask(_rows(columns.terminated))),
            truncated=timesteps.spread(timesteps.reward_mask(_rows(columns.truncated))),
            old_values=output.values,
            bootstrap_values=bootstrap,
            positions_per_reward=timesteps.positions_per_reward,
        )

    def _bootstrap(
        self, policy: PolicyFacts, columns: Columns, inputs: ObservationInputs
    ) -> RolloutCoroutine[torch.Tensor]:
        """Values [N, timesteps] of the observations after truncated timesteps and after the last timestep; 0
        elsewhere."""
        rewards = policy.granularity.decision_rewards
        queries = [(env_index, timestep, min(part, rewards - 1)) for timestep, env_index, part, _ in columns.finals]
        finals = len(queries)
        queries += [(env_index, self._num_steps - 1, rewards - 1) for env_index in self._all]
        leaves: dict[str, torch.Tensor] = {}
        for name, newest in self._vec_env.observations.items():
            kept = [final[name] for _, _, _, final in columns.finals]
            leaves[name] = torch.from_numpy(np.concatenate([np.stack(kept), newest]) if kept else newest.copy())
        rows, timesteps, parts = torch.tensor(queries).unbind(1)
        shape = torch.Size((len(self._all), self._num_steps))
        state = torch.zeros(shape.numel(), 0)
        if policy.state_size:
            state = yield PolicyRequest("states", (inputs, shape))
        values = yield PolicyRequest("values", (leaves, state.unflatten(0, shape)[rows, timesteps]))
        result = torch.zeros(*shape, rewards)
        result[:, -1, -1] = values[finals:]
        # Where a sub-environment was cut in its last timestep, its final observation counts, not the first one of the
        # new episode.
        result[rows[:finals], timesteps[:finals], parts[:finals]] = values[:finals]
        return policy.granularity.spread(result.flatten(1))

    def skip_episodes(self, count: int) -> None:
        """Skips episode numbers before the first episode."""
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
            "told": self._tally.has_success.copy(),
            "failures": self.failure_count.total,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Rebuilds every sub-environment: reset with the episode's seed, then the recorded actions again.

        An episode that ends before its last recorded action does not repeat; its sub-environment begins the next one.
        """
        self.failure_count.total = state["failures"]
        if state["recurrent_state"] is None:
            return
        self._episode[:] = state["episode"]
        self._state = state["recurrent_state"].copy()
        self._history.begin(self._all)
        self._vec_env.reset(self._all, [self._episode_seed(env_index) for env_index in self._all])
        self._history.load(state["actions"])
        over: list[int] = []
        for env_index, actions in enumerate(state["actions"]):
            played = (part[None] for action in actions for part in (action if self._chunk > 1 else [action]))
            if any(self._ends(env_index, part) for part in played):
                over.append(env_index)
        self._fresh[:] = state["fresh"]
        self._tally.totals[:] = state["totals"]
        self._tally.lengths[:] = state["lengths"]
        self._tally.succeeded[:] = state["succeeded"]
        self._tally.has_success[:] = state.get("told", state["succeeded"])  # older checkpoints lack it
        for env_index in over:
            self._tally.clear(env_index)
        self._begin(over)

    def _ends(self, env_index: int, action: np.ndarray) -> bool:
        """Repeat a recorded action [1, ...]; return whether the episode ends or fails with it."""
        result = self._vec_env.step([env_index], action)
        if result.failed:
            self._vec_env.restart(env_index)
        ended = result.terminated | result.truncated
        return bool(result.failed) or (len(ended) == 1 and bool(ended[0]))  # native vector environments step all


def _joined(timesteps: Granularity, outputs: Sequence[Sequence[PolicyOutput]], executed: torch.Tensor) -> PolicyOutput:
    """Join the values that came with the stages' decisions, as positions [N, T]; ``executed`` [N, decisions, K]."""
    logprobs = torch.cat([torch.stack([each.logprobs for each in stage], 1) for stage in outputs])
    numbers = logprobs.view(*executed.shape, timesteps.dimensions)
    values = None
    if outputs[0][0].values is not None:
        stages = [[each.values for each in stage if each.values is not None] for stage in outputs]
        values = torch.cat([torch.stack(stage, 1) for stage in stages]).flatten(1)
        values = torch.where(timesteps.mask(executed), timesteps.spread(values), 0.0)
    return PolicyOutput(timesteps.logprobs(numbers, executed), values=values)


def _rows(by_time: np.ndarray) -> torch.Tensor:
    """[T, N, ...] to a contiguous tensor [N, T, ...]."""
    return torch.from_numpy(np.ascontiguousarray(np.swapaxes(by_time, 0, 1)))
