"""Whole episodes, one per row: for group estimators, for REINFORCE, and for evaluation.

Sub-environments work through a list of episodes; one that is done takes the next. The start state and the noise of an
episode are keyed by its row, so neither the number of sub-environments nor the order of finishing changes the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import gymnasium
import numpy as np
import torch

from rlinf.data.batch import Batch
from rlinf.data.columns import RewardDetails
from rlinf.data.inputs import ObservationInputs
from rlinf.data.spaces import Arrays, observation_leaves, text_of
from rlinf.interfaces import ActingPolicy
from rlinf.models.policy_requests import Decision, PolicyFacts, PolicyRequest, RolloutCoroutine, drive
from rlinf.rollouts.simulator.failures import Attempt, FailureCount
from rlinf.rollouts.simulator.noise import NoiseStream
from rlinf.rollouts.simulator.records import EpisodeRecord, EpisodeTally, EpisodeTrace
from rlinf.rollouts.vec_env.mixture import ONE_TASK, Mixture
from rlinf.rollouts.vec_env.vec_env import VecEnv
from rlinf.rollouts.video.film_track import FilmTrack

_NOISE_BLOCK = 64
_ATTEMPTS = 3
_EVALUATION_SEATS = 16_384
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
    """Of a ``brief`` run those of the first decision alone."""
    actions: np.ndarray
    rewards: np.ndarray
    """[L, K] for chunks of K actions."""
    executed: np.ndarray
    """[L, K] bool: the actions that were carried out."""
    env_actions: np.ndarray
    """[L, ...], with chunks [L, K, ...], as the environment took them."""
    terminated: bool
    record: EpisodeRecord
    logprobs: np.ndarray | None = None
    """[L, K D], where they came with the decisions."""


@dataclass
class EpisodeRun:
    episodes: list[Episode]
    """In the order of the tasks; those that failed in every attempt are missing."""
    failures: Counter[str]
    env_steps: int


@dataclass
class _Running:
    """The running episode of a sub-environment."""

    task: EpisodeTask
    attempt: int
    noise: NoiseStream | None
    hold: int
    """Decisions that share their noise; -1: all."""
    block: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))
    decisions: list[tuple[int, _Decision]] = field(default_factory=list)
    """Those made so far, each with the position of this sub-environment in it."""


@dataclass(frozen=True)
class _Decision:
    """One of all busy sub-environments: [n, ...] per column."""

    observations: Arrays
    actions: np.ndarray
    rewards: np.ndarray
    executed: np.ndarray
    env_actions: np.ndarray
    logprobs: np.ndarray | None


class EpisodeCollector:
    """Runs lists of episodes on the sub-environments of one worker."""

    def __init__(
        self,
        vec_env: VecEnv,
        *,
        seed: int,
        chunk: int = 1,
        max_failures: int = 100,
        env_id: str = "the environment",
        auto_reset: bool = True,
        mixture: Mixture = ONE_TASK,
    ) -> None:
        self.vec_env = vec_env
        self._mixture = mixture
        self._held = [""] * vec_env.num_envs
        """The task that each sub-environment played last."""
        self._seed = seed
        self._chunk = chunk
        self._auto_reset = auto_reset
        self._tally = EpisodeTally(vec_env.num_envs)
        self.failure_count = FailureCount(max_failures, vec_env.num_envs, env_id)
        self._starts: dict[int, bytes] = {}
        """Digests of first observations, by the seed of the episode."""
        self.other_starts = False
        """Whether an episode began with another observation than an earlier one of the same seed."""

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
        env_indices: Sequence[int] | None = None,
        brief: bool = False,
    ) -> RolloutCoroutine[EpisodeRun]:
        """All of ``tasks`` to their ends on some ``env_indices`` (None: all).

        ``brief``, as for evaluations, keeps no observations but those of each episode's first decision.
        Noise is keyed by (run seed, rollout, row, attempt), the rollout being ``key``; ``greedy`` needs none.
        """
        usable = range(self.vec_env.num_envs) if env_indices is None else env_indices
        if not brief:  # seeds of training do not come again
            self._starts.clear()
        waiting = [(task, 0) for task in reversed(tasks)]
        busy: dict[int, _Running] = {}
        state = np.zeros((self.vec_env.num_envs, policy.state_size), dtype=np.float32)
        run = EpisodeRun([], Counter(), 0)
        while waiting or busy:
            # Every idle sub-environment gets the next episode; a reset that fails is tried again, like one that broke.
            may_begin = waiting and (self._auto_reset or not busy)
            idle = [env_index for env_index in usable if env_index not in busy][: len(waiting)] if may_begin else []
            taken = [waiting.pop(self._next_for(env_index, waiting)) for env_index in idle]
            failed = self.vec_env.reset(idle, [task.start_seed for task, _ in taken]) if idle else {}
            self.failure_count.went_well("reset", len(idle) - len(failed))
            for position, (env_index, (task, attempt)) in enumerate(zip(idle, taken, strict=True)):
                if position in failed:
                    self._fail("reset", env_index, failed[position], run)
                    if attempt + 1 < _ATTEMPTS:
                        waiting.append((task, attempt + 1))
                    continue
                names: tuple[int | str, ...] = ("act", *key, task.row, attempt)
                stream = None if greedy else NoiseStream(policy.noise_kind, policy.noise_size, self._seed, *names)
                busy[env_index] = _Running(task, attempt, stream, policy.noise_hold)
                self._compare_start(env_index, task.start_seed)
                state[env_index] = 0.0
                self._tally.clear(env_index)
            now = sorted(busy)
            if not now:
                continue
            observations = {name: leaf[now] for name, leaf in self.vec_env.observations.items()}
            noise = None if greedy else np.stack([self._noise(busy[env_index]) for env_index in now])
            decision: Decision = yield PolicyRequest("decide", (observations, state[now], noise))
            state[now] = decision.state
            rewards, executed, over = self._advance(now, decision.env_actions, busy, run)
            logprobs = None if decision.output is None else decision.output.logprobs.numpy()
            kept = observations if not brief or any(not busy[env_index].decisions for env_index in now) else {}
            made = _Decision(kept, decision.actions, rewards, executed, decision.env_actions, logprobs)
            for position, env_index in enumerate(now):
                busy[env_index].decisions.append((position, made))
            for env_index, outcome in over.items():
                if outcome is not None:
                    run.episodes.append(_stacked(busy.pop(env_index), *outcome, brief=brief))
                    continue
                broken = busy.pop(env_index)
                if broken.attempt + 1 < _ATTEMPTS:
                    waiting.append((broken.task, broken.attempt + 1))
        run.episodes.sort(key=lambda episode: episode.task.row)
        return run

    def _compare_start(self, env_index: int, seed: int) -> None:
        """Compare the first observation of an episode with that of an earlier one of the same ``seed``."""
        digest = blake2b(digest_size=16)
        for leaf in self.vec_env.observations.values():
            digest.update(leaf[env_index].tobytes())
        start = digest.digest()
        self.other_starts |= self._starts.setdefault(seed, start) != start

    def _next_for(self, env_index: int, waiting: Sequence[tuple[EpisodeTask, int]]) -> int:
        """Find the position in ``waiting`` of the sub-environment's next episode.

        It is one of the task that it has made already, else of the one that the fewest have made. Without tasks it is
        the last."""
        if not self._mixture.names:
            return len(waiting) - 1
        first: dict[str, int] = {}
        for index in reversed(range(len(waiting))):
            first.setdefault(self._mixture.name(waiting[index][0].start_seed), index)
        name = self._held[env_index]
        if name not in first:
            name = self._held[env_index] = min(first, key=self._held.count)
        return first[name]

    @staticmethod
    def _noise(episode: _Running) -> np.ndarray:
        """[noise_size] for the sub-environment's next decision."""
        assert episode.noise is not None
        number = len(episode.decisions)
        draw, repeat = divmod(number, episode.hold) if episode.hold > 0 else (0, number)
        index = draw % _NOISE_BLOCK
        if index == 0 and repeat == 0:
            episode.block = episode.noise.draw(_NOISE_BLOCK if episode.hold > 0 else 1)
        return episode.block[index]

    def _advance(
        self, env_indices: list[int], actions: np.ndarray, busy: dict[int, _Running], run: EpisodeRun
    ) -> tuple[np.ndarray, np.ndarray, dict[int, tuple[bool, EpisodeRecord] | None]]:
        """One decision: rewards [n, K], what was carried out [n, K], the sub-environments that are done (None: it
        failed)."""
        rewards = np.zeros((len(env_indices), self._chunk))
        executed = np.zeros((len(env_indices), self._chunk), dtype=bool)
        over: dict[int, tuple[bool, EpisodeRecord] | None] = {}
        positions = {env_index: position for position, env_index in enumerate(env_indices)}
        alive = env_indices
        success_now: dict[int, bool] = {}
        for part in range(self._chunk):
            rows = [positions[env_index] for env_index in alive]
            result = self.vec_env.step(
                alive, actions[rows, part] if self._chunk > 1 else actions, observe=part == self._chunk - 1
            )
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
                env_index = alive[position]
                record = self._record(env_index, busy[env_index].task, bool(result.success[position]))
                over[env_index] = (bool(result.terminated[position]), record)
            success_now.update(zip(alive, result.success.tolist(), strict=True))
            alive = [env_index for env_index in alive if env_index not in over]
            if not alive:
                break
        for env_index in alive:
            if len(busy[env_index].decisions) + 1 >= MAX_DECISIONS:
                over[env_index] = False, self._record(env_index, busy[env_index].task, success_now[env_index])
        return rewards, executed, over

    def _record(self, env_index: int, task: EpisodeTask, success_now: bool) -> EpisodeRecord:
        return self._tally.finish(env_index, task.row, success_now, self._mixture.name(task.start_seed))

    def _fail(self, attempt: Attempt, env_index: int, kind: str, run: EpisodeRun) -> None:
        run.failures[kind] += 1
        self.failure_count.add(attempt, kind, self.vec_env.last_failure)
        self.vec_env.restart(env_index)


def _stacked(running: _Running, terminated: bool, record: EpisodeRecord, *, brief: bool) -> Episode:
    """Stack the decisions of an episode that is over."""
    mine = running.decisions
    seen = mine[:1] if brief else mine
    known = [past.logprobs[at] for at, past in mine if past.logprobs is not None]
    return Episode(
        task=running.task,
        observations={
            name: np.stack([past.observations[name][at] for at, past in seen]) for name in seen[0][1].observations
        },
        actions=np.stack([past.actions[at] for at, past in mine]),
        rewards=np.stack([past.rewards[at] for at, past in mine]),
        executed=np.stack([past.executed[at] for at, past in mine]),
        env_actions=np.stack([past.env_actions[at] for at, past in mine]),
        terminated=terminated,
        record=record,
        logprobs=np.stack(known) if known else None,
    )


def joined(runs: Sequence[EpisodeRun]) -> EpisodeRun:
    """Several runs as one, its episodes in the order of their rows."""
    episodes = sorted((episode for run in runs for episode in run.episodes), key=lambda episode: episode.task.row)
    return EpisodeRun(episodes, sum((run.failures for run in runs), Counter()), sum(run.env_steps for run in runs))


def trace_of(episode: Episode, spaces: tuple[gymnasium.Space, gymnasium.Space], film: FilmTrack | None) -> EpisodeTrace:
    """Build what a report shows of an episode, a value for each environment step; any action is a row of dimensions.

    ``spaces`` are those of observation and action; ``film``: the episode's part of a film.
    """
    executed = episode.executed
    actions = episode.env_actions.reshape(*executed.shape, -1)[executed]
    texts = [leaf for leaf, part in observation_leaves(spaces[0]).items() if isinstance(part, gymnasium.spaces.Text)]
    return EpisodeTrace(
        episode.record,
        episode.task.start_seed,
        len(executed),
        episode.rewards[executed].tolist(),
        actions.T.tolist(),
        not isinstance(spaces[1], gymnasium.spaces.Box),
        executed.shape[1],
        text_of(episode.observations[texts[0]][0]) if texts else "",
        film,
    )


def episodes_batch(policy: PolicyFacts, episodes: Sequence[Episode], version: int) -> RolloutCoroutine[Batch]:
    """Rows padded to the longest episode."""
    timesteps = policy.granularity
    rows, decisions = len(episodes), max(len(episode.rewards) for episode in episodes)
    executed = _padded([episode.executed for episode in episodes], decisions)
    inputs = ObservationInputs(
        {name: _padded([e.observations[name] for e in episodes], decisions) for name in episodes[0].observations},
        recurrent_state=torch.zeros(rows, policy.state_size) if policy.state_size else None,
        episode_starts=torch.zeros(rows, decisions, dtype=torch.bool) if policy.state_size else None,
        executed=executed if timesteps.actions > 1 else None,
    )
    mask, reward_mask = timesteps.mask(executed), timesteps.reward_mask(executed)
    actions = _padded([episode.actions for episode in episodes], decisions)
    rewards = timesteps.rewards(_padded([episode.rewards for episode in episodes], decisions), executed).to(
        torch.float32
    )
    reported = [episode.logprobs for episode in episodes if episode.logprobs is not None]
    if policy.tells:
        numbers = _padded(reported, decisions).view(rows, decisions, timesteps.actions, timesteps.dimensions)
        logprobs = timesteps.logprobs(numbers, executed)
    else:
        logprobs = yield from _evaluated(inputs, actions, mask, decisions)
    last = timesteps.spread(reward_mask & (reward_mask.sum(dim=1, keepdim=True) == reward_mask.cumsum(dim=1)))
    ended = torch.tensor([episode.terminated for episode in episodes])[:, None]
    return Batch(
        inputs=inputs,
        actions=actions,
        mask=mask,
        rollout_logprobs=torch.where(mask, logprobs, 0.0),
        rewards=timesteps.first(rewards),
        reward_details=RewardDetails(
            step_rewards=timesteps.first(torch.where(reward_mask, rewards, torch.nan), fill=torch.nan)
        ),
        group_ids=torch.tensor([episode.task.group for episode in episodes], dtype=torch.int64),
        policy_version=torch.full(mask.shape, version, dtype=torch.int32),
        terminated=last & ended,
        truncated=last & ~ended,
        positions_per_reward=timesteps.positions_per_reward,
        metadata={
            "start_seed": [episode.task.start_seed for episode in episodes],
            "success": [episode.record.success_once for episode in episodes],
        },
    )


def _evaluated(
    inputs: ObservationInputs, actions: torch.Tensor, mask: torch.Tensor, decisions: int
) -> RolloutCoroutine[torch.Tensor]:
    """Log-probabilities [B, T] of ``actions``, a bounded number of timesteps at a time."""
    logprobs: list[torch.Tensor] = []
    for part in torch.arange(len(actions)).split(max(1, _EVALUATION_SEATS // decisions)):
        output = yield PolicyRequest("evaluate", (inputs.select(part), actions[part], mask[part]))
        logprobs.append(output.logprobs)
    return torch.cat(logprobs)


def _padded(columns: Sequence[np.ndarray], timesteps: int) -> torch.Tensor:
    """[L, ...] each to one zero-padded tensor [B, timesteps, ...]."""
    result = np.zeros((len(columns), timesteps, *columns[0].shape[1:]), dtype=columns[0].dtype)
    for row, column in enumerate(columns):
        result[row, : len(column)] = column
    return torch.from_numpy(result)
