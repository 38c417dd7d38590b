"""Whole episodes, one per row: for group estimators, for REINFORCE, and for evaluation.

Sub-environments work through a list of episodes; one that is done takes the next. The start state and the noise of an
episode are keyed by its row, so neither the number of sub-environments nor the order of finishing changes the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from rlinf.interfaces import ActingPolicy
from rlinf.models.policy_requests import Decision, PolicyFacts, PolicyRequest, RolloutCoroutine, drive
from rlinf.rollouts.envs.vec_env import VecEnv
from rlinf.rollouts.simulator.failures import Attempt, FailureCount
from rlinf.rollouts.simulator.noise import NoiseStream
from rlinf.rollouts.simulator.records import EpisodeRecord, EpisodeTally, EpisodeTrace
from rlinf.spaces import Arrays
from rlinf.types import Batch, ObservationInputs

_NOISE_BLOCK = 64
_ATTEMPTS = 3
_EVALUATION_SLOTS = 16_384
MAX_DECISIONS = 10_000
"""Of an episode whose environment has no time limit: it is cut there, which counts as a truncation."""


@dataclass(frozen=True)
class EpisodeTask:
    """One episode to run."""

    row: int
    """Its row in the batch of all workers."""
    group: int
    start_seed: int
    """Given to the environment's reset: the same number, the same start."""


@dataclass
class Episode:
    """One that was run: [L, ...] per column, L decisions."""

    task: EpisodeTask
    observations: Arrays
    actions: np.ndarray
    rewards: np.ndarray
    """[L, K] for chunks of K actions."""
    executed: np.ndarray
    """[L, K] bool: the actions that were carried out."""
    terminated: bool
    record: EpisodeRecord


@dataclass
class EpisodeRun:
    episodes: list[Episode]
    """In the order of the tasks; those that failed in every attempt are missing."""
    failures: Counter[str]
    env_steps: int


@dataclass
class _Slot:
    """What a lane is busy with."""

    task: EpisodeTask
    attempt: int
    first: int
    """Index of its first decision among those of the run."""
    noise: NoiseStream | None
    block: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))


@dataclass(frozen=True)
class _Decision:
    """One of all busy lanes: [n, ...] per column, in the order of ``lanes``."""

    lanes: list[int]
    observations: Arrays
    actions: np.ndarray
    rewards: np.ndarray
    executed: np.ndarray


class EpisodeCollector:
    """Runs lists of episodes on the lanes of one worker."""

    def __init__(
        self,
        lanes: VecEnv,
        *,
        seed: int,
        chunk: int = 1,
        max_failures: int = 100,
        env_id: str = "the environment",
        max_decisions: int = MAX_DECISIONS,
        auto_reset: bool = True,
    ) -> None:
        self._lanes = lanes
        self._seed = seed
        self._chunk = chunk
        self._max_decisions = max_decisions
        self._auto_reset = auto_reset
        self._tally = EpisodeTally(lanes.num_lanes)
        self.failure_count = FailureCount(max_failures, lanes.num_lanes, env_id)

    @property
    def last_failure(self) -> str:
        """An account of the newest failure of an environment; empty before the first."""
        return self._lanes.last_failure

    def run(self, policy: ActingPolicy, tasks: Sequence[EpisodeTask], step: int, *, greedy: bool = False) -> EpisodeRun:
        """All of ``tasks`` to their ends, with a policy of this process."""
        return drive(self.play(PolicyFacts.of(policy), tasks, (step,), greedy=greedy), policy)

    def play(
        self,
        policy: PolicyFacts,
        tasks: Sequence[EpisodeTask],
        key: tuple[int, ...],
        *,
        greedy: bool = False,
        lanes: Sequence[int] | None = None,
    ) -> RolloutCoroutine[EpisodeRun]:
        """All of ``tasks`` to their ends on some ``lanes`` (None: all).

        Noise is keyed by (run seed, rollout, row, attempt), the rollout being ``key``; ``greedy`` needs none.
        """
        usable = range(self._lanes.num_lanes) if lanes is None else lanes
        waiting = [(task, 0) for task in reversed(tasks)]
        busy: dict[int, _Slot] = {}
        history: list[_Decision] = []
        state = np.zeros((self._lanes.num_lanes, policy.state_size), dtype=np.float32)
        run = EpisodeRun([], Counter(), 0)
        while waiting or busy:
            if waiting and (self._auto_reset or not busy):
                self._assign(usable, waiting, busy, policy, key, greedy, state, len(history), run)
            now = sorted(busy)
            if not now:
                continue
            observations = {name: leaf[now] for name, leaf in self._lanes.observations.items()}
            noise = None if greedy else np.stack([self._noise(busy[lane], len(history)) for lane in now])
            decision: Decision = yield PolicyRequest("decide", (observations, state[now], noise))
            state[now] = decision.state
            rewards, executed, over = self._advance(now, decision.env_actions, busy, len(history), run)
            history.append(_Decision(now, observations, decision.actions, rewards, executed))
            for lane, outcome in over.items():
                slot = busy.pop(lane)
                if outcome is None:
                    if slot.attempt + 1 < _ATTEMPTS:
                        waiting.append((slot.task, slot.attempt + 1))
                    continue
                terminated, record = outcome
                run.episodes.append(_cut(history, lane, slot, terminated, record))
            if not busy:
                history.clear()
        run.episodes.sort(key=lambda episode: episode.task.row)
        return run

    def _assign(
        self,
        usable: Sequence[int],
        waiting: list[tuple[EpisodeTask, int]],
        busy: dict[int, _Slot],
        policy: PolicyFacts,
        key: tuple[int, ...],
        greedy: bool,
        state: np.ndarray,
        first: int,
        run: EpisodeRun,
    ) -> None:
        """Gives every idle lane the next episode. One that can not be reset is tried again like one that broke."""
        idle = [lane for lane in usable if lane not in busy][: len(waiting)]
        if not idle:
            return
        taken = [waiting.pop() for _ in idle]
        failed = self._lanes.reset(idle, [task.start_seed for task, _ in taken])
        self.failure_count.went_well("reset", len(idle) - len(failed))
        for position, (lane, (task, attempt)) in enumerate(zip(idle, taken, strict=True)):
            if position in failed:
                self._fail("reset", lane, failed[position], run)
                if attempt + 1 < _ATTEMPTS:
                    waiting.append((task, attempt + 1))
                continue
            names: tuple[int | str, ...] = ("act", *key, task.row, attempt)
            noise = None if greedy else NoiseStream(policy.noise_kind, policy.noise_size, self._seed, *names)
            busy[lane] = _Slot(task, attempt, first, noise)
            state[lane] = 0.0
            self._tally.clear(lane)

    @staticmethod
    def _noise(slot: _Slot, now: int) -> np.ndarray:
        """[noise_size] for the lane's next decision."""
        assert slot.noise is not None
        index = (now - slot.first) % _NOISE_BLOCK
        if index == 0:
            slot.block = slot.noise.draw(_NOISE_BLOCK)
        return slot.block[index]

    def _advance(
        self, lanes: list[int], actions: np.ndarray, busy: dict[int, _Slot], now: int, run: EpisodeRun
    ) -> tuple[np.ndarray, np.ndarray, dict[int, tuple[bool, EpisodeRecord] | None]]:
        """One decision: rewards [n, K], what was carried out [n, K], the lanes that are done (None: it failed)."""
        rewards = np.zeros((len(lanes), self._chunk))
        executed = np.zeros((len(lanes), self._chunk), dtype=bool)
        over: dict[int, tuple[bool, EpisodeRecord] | None] = {}
        place = {lane: position for position, lane in enumerate(lanes)}
        alive = lanes
        success_now: dict[int, bool] = {}
        for part in range(self._chunk):
            rows = [place[lane] for lane in alive]
            result = self._lanes.step(alive, actions[rows, part] if self._chunk > 1 else actions)
            acted = np.ones(len(alive), dtype=bool)
            acted[list(result.failed)] = False
            index = np.asarray(alive)
            self._tally.add(index, result, acted)
            rewards[np.asarray(rows)[acted], part] = result.rewards[acted]
            executed[np.asarray(rows)[acted], part] = True
            stepped = int(acted.sum())
            run.env_steps += stepped
            self.failure_count.went_well("step", stepped)
            for position, kind in result.failed.items():
                over[alive[position]] = None
                self._fail("step", alive[position], kind, run)
            for position in np.nonzero((result.terminated | result.truncated) & acted)[0].tolist():
                lane = alive[position]
                record = self._tally.finish(lane, busy[lane].task.row, bool(result.success[position]))
                over[lane] = (bool(result.terminated[position]), record)
            success_now.update(zip(alive, result.success.tolist(), strict=True))
            alive = [lane for lane in alive if lane not in over]
            if not alive:
                break
        for lane in alive:
            if now - busy[lane].first + 1 >= self._max_decisions:
                over[lane] = (False, self._tally.finish(lane, busy[lane].task.row, success_now[lane]))
        return rewards, executed, over

    def _fail(self, attempt: Attempt, lane: int, kind: str, run: EpisodeRun) -> None:
        run.failures[kind] += 1
        self.failure_count.add(attempt, repr(kind), self._lanes.last_failure)
        self._lanes.restart(lane)


def _cut(history: list[_Decision], lane: int, slot: _Slot, terminated: bool, record: EpisodeRecord) -> Episode:
    """The lane's part of the run's history since the episode began."""
    mine = [(decision.lanes.index(lane), decision) for decision in history[slot.first :]]
    names = list(mine[0][1].observations)
    return Episode(
        task=slot.task,
        observations={name: np.stack([past.observations[name][at] for at, past in mine]) for name in names},
        actions=np.stack([past.actions[at] for at, past in mine]),
        rewards=np.stack([past.rewards[at] for at, past in mine]),
        executed=np.stack([past.executed[at] for at, past in mine]),
        terminated=terminated,
        record=record,
    )


def joined(runs: Sequence[EpisodeRun]) -> EpisodeRun:
    """Several runs as one, its episodes in the order of their rows."""
    episodes = sorted((episode for run in runs for episode in run.episodes), key=lambda episode: episode.task.row)
    return EpisodeRun(episodes, sum((run.failures for run in runs), Counter()), sum(run.env_steps for run in runs))


def trace_of(episode: Episode) -> EpisodeTrace:
    """Rewards (a chunk's together) and actions as plain numbers, for reports; any action is a row of dimensions."""
    actions = episode.actions.reshape(len(episode.rewards), -1).T
    rewards = episode.rewards.reshape(len(episode.rewards), -1).sum(axis=1).tolist()
    return EpisodeTrace(episode.record, episode.task.start_seed, rewards, actions.tolist())


def episodes_batch(policy: PolicyFacts, episodes: Sequence[Episode], version: int) -> RolloutCoroutine[Batch]:
    """Rows padded to the longest episode; log-probabilities by evaluating a bounded number of slots at a time."""
    slots = policy.granularity
    rows, decisions = len(episodes), max(len(episode.rewards) for episode in episodes)
    executed = _padded([episode.executed for episode in episodes], decisions)
    inputs = ObservationInputs(
        {name: _padded([e.observations[name] for e in episodes], decisions) for name in episodes[0].observations},
        recurrent_state=torch.zeros(rows, policy.state_size) if policy.state_size else None,
        episode_starts=torch.zeros(rows, decisions, dtype=torch.bool) if policy.state_size else None,
        executed=executed if slots.actions > 1 else None,
    )
    mask, reward_mask = slots.mask(executed), slots.reward_mask(executed)
    actions = _padded([episode.actions for episode in episodes], decisions)
    rewards = slots.rewards(_padded([episode.rewards for episode in episodes], decisions), executed).to(torch.float32)
    at_once = max(1, _EVALUATION_SLOTS // decisions)
    said: list[torch.Tensor] = []
    for part in torch.arange(rows).split(at_once):
        output = yield PolicyRequest("evaluate", (inputs.select(part), actions[part], mask[part]))
        said.append(output.logprobs)
    logprobs = torch.cat(said)
    last = slots.spread(reward_mask & (reward_mask.sum(dim=1, keepdim=True) == reward_mask.cumsum(dim=1)))
    ended = torch.tensor([episode.terminated for episode in episodes])[:, None]
    return Batch(
        inputs=inputs,
        actions=actions,
        mask=mask,
        rollout_logprobs=torch.where(mask, logprobs, 0.0),
        rewards=slots.first(rewards),
        step_rewards=slots.first(torch.where(reward_mask, rewards, torch.nan), fill=torch.nan),
        group_ids=torch.tensor([episode.task.group for episode in episodes], dtype=torch.int64),
        policy_version=torch.full(mask.shape, version, dtype=torch.int32),
        terminated=last & ended,
        truncated=last & ~ended,
        decision_slots=slots.decision_slots,
        reward_slots=slots.reward_slots,
        metadata={
            "start_seed": [episode.task.start_seed for episode in episodes],
            "success": [episode.record.success_once for episode in episodes],
        },
    )


def _padded(columns: Sequence[np.ndarray], slots: int) -> torch.Tensor:
    """[L, ...] each to one zero-padded tensor [B, slots, ...]."""
    result = np.zeros((len(columns), slots, *columns[0].shape[1:]), dtype=columns[0].dtype)
    for row, column in enumerate(columns):
        result[row, : len(column)] = column
    return torch.from_numpy(result)
