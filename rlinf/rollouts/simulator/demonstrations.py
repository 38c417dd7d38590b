"""A demonstrator's actions, as decisions to imitate.

An environment that can demonstrate has a method ``expert_action()``: the action to take now, from its full
internal state. Others have a function by name (:mod:`rlinf.rollouts.simulator.experts`), or recorded
episodes. With ``perturbation`` some decisions are random instead and are not kept. So the demonstrator is
also seen getting back on its way (Laskey et al. 2017, https://arxiv.org/abs/1703.09327, with random actions
for noise). If a policy makes some of the decisions, the demonstrator's corrections of its mistakes are
learned too (DAgger: Ross et al. 2011, https://arxiv.org/abs/1011.0686).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Text

from rlinf.base.random_streams import numpy_generator
from rlinf.data.batch import Batch
from rlinf.data.granularity import Granularity
from rlinf.data.inputs import ObservationInputs
from rlinf.data.spaces import ADVANTAGE, Arrays, empty_leaves, observation_leaves, text_of, write_observation
from rlinf.models.policy_requests import Decision, PolicyFacts, PolicyRequest, RolloutCoroutine
from rlinf.rollouts.isolation.env import make_env_anywhere
from rlinf.rollouts.simulator.episodes import EpisodeTask
from rlinf.rollouts.simulator.experts import ExpertStep, MakeExpert, expert_of, expert_steps, gate_of
from rlinf.rollouts.simulator.noise import NoiseStream
from rlinf.rollouts.vec_env.mixture import Mixture
from rlinf.rollouts.vec_env.vec_env import close_quietly
from rlinf.schema import EnvConfig

_SAME_TEXT, _NOTHING_NEW = 20, 0.75
"""Starts of each task, and the share of the starts so far without a new text, before no other text is searched for."""


@dataclass
class Demonstrations:
    """Decisions [n, ...] of the episodes that succeeded, in the order of the tasks."""

    observations: Arrays
    actions: np.ndarray
    """[n, Q] in the policy's own units."""
    executed: np.ndarray
    """[n, K] bool: those of a chunk that came before the episode's end."""
    granularity: Granularity
    solved: int
    tried: int
    imitation_noise: int = 0
    """Standard normal numbers that follow each action in a batch, fresh in every one."""
    successes: int = 0
    """Episodes that ended with success, of the demonstrator or of the policy."""
    interventions: int = 0
    """Times that the demonstrator took over from a policy, or began."""
    info_keys: frozenset[str] = frozenset()
    """Of all steps."""
    positive: np.ndarray | None = None
    """[n] bool: decisions that were better than expected; None where no policy is conditioned on it."""


@dataclass
class _Episode:
    """An episode as it was played."""

    success: bool
    decisions: list[tuple[Any, np.ndarray, int]] = field(default_factory=list)
    """(observation, chunk, executed actions) of those that the demonstrator made."""
    interventions: int = 0
    info_keys: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Demonstrator:
    """Runs an environment's expert, or the one that is named (``expert``, `module:name`)."""

    options: EnvConfig
    seed: int
    perturbation: float
    expert: str | None = None
    policys_share: float = 0.0
    """Of the decisions that are not imitated since the policy makes them; episodes count then however they end."""
    gate: str | None = None
    """Instead of that share: `module:name` of the function that selects demonstrator or policy for a decision."""
    round: int = 0
    """Each has random streams of its own."""
    labelled: bool = False
    """Its decisions are marked as better than expected, all of them."""

    def play(self, policy: PolicyFacts, tasks: Sequence[EpisodeTask]) -> RolloutCoroutine[Demonstrations]:
        """One episode for each of ``tasks``; those of the demonstrator alone that end without success are left out."""
        env = make_env_anywhere(self.options)
        try:
            make_expert = expert_of(self.expert, env, self.options.id)
            episodes: list[_Episode] = []
            for task in tasks:
                episodes.append((yield from self._episode(policy, env, make_expert, task)))
        finally:
            close_quietly(env)
        mixed = self.policys_share > 0 or self.gate is not None
        counted = [episode for episode in episodes if episode.success or mixed]
        kept = [decision for episode in counted for decision in episode.decisions]
        leaves = empty_leaves(env.observation_space, (len(kept),))
        for row, (observation, _, _) in enumerate(kept):
            write_observation(leaves, row, observation)
        actions = np.zeros((0, 0))
        if kept:
            actions = yield PolicyRequest("own_actions", (np.stack([chunk for _, chunk, _ in kept]),))
        counts = np.array([count for _, _, count in kept], dtype=np.int64)
        executed = np.arange(self.options.num_action_chunks) < counts[:, None]
        return Demonstrations(
            leaves,
            actions,
            executed,
            policy.granularity,
            len(counted),
            len(tasks),
            policy.imitation_noise,
            successes=sum(episode.success for episode in episodes),
            interventions=sum(episode.interventions for episode in episodes),
            info_keys=frozenset().union(*(episode.info_keys for episode in episodes)),
            positive=np.ones(len(kept), dtype=bool) if self.labelled else None,
        )

    def _episode(
        self, policy: PolicyFacts, env: gymnasium.Env, make_expert: MakeExpert, task: EpisodeTask
    ) -> RolloutCoroutine[_Episode]:
        """Play an episode."""
        key = ("demonstration", task.row) if self.round == 0 else ("demonstration", self.round, task.row)
        source = expert_steps(
            env,
            make_expert,
            self.options,
            start_seed=task.start_seed,
            perturbation=self.perturbation,
            policys_share=self.policys_share,
            make_gate=None if self.gate is None else gate_of(self.gate),
            generator=numpy_generator(self.seed, *key),
            every_observation=False,
        )
        noise = NoiseStream(policy.noise_kind, policy.noise_size, self.seed, "demonstration noise", *key[1:])
        steps: list[ExpertStep] = []
        item = next(source, None)
        while item is not None:
            theirs: np.ndarray | None = None
            if isinstance(item, ExpertStep):
                steps.append(item)
            else:
                theirs = yield from self._decided(policy, env, item.observation, noise)
            try:
                item = source.send(theirs)
            except StopIteration:
                item = None
        chunk = self.options.num_action_chunks
        episode, helped = _Episode(steps[-1].success), False
        episode.info_keys = frozenset().union(*(step.info_keys for step in steps))
        for first in range(0, len(steps), chunk):
            parts = steps[first : first + chunk]
            actions = [step.action for step in parts]
            actions += [actions[-1]] * (chunk - len(parts))  # to a whole chunk; what fills it up is not imitated
            if parts[0].demonstrated:
                chosen = np.stack(actions) if chunk > 1 else actions[0]
                episode.decisions.append((parts[0].observation, chosen, len(parts)))
                episode.interventions += not helped
            helped = parts[0].demonstrated
        return episode

    def _decided(
        self, policy: PolicyFacts, env: gymnasium.Env, observation: Any, noise: NoiseStream
    ) -> RolloutCoroutine[np.ndarray]:
        """Return the policy's actions [K, ...] at one observation."""
        leaves = empty_leaves(env.observation_space, (1,))
        write_observation(leaves, 0, observation)
        state = np.zeros((1, policy.state_size), dtype=np.float32)
        decision: Decision = yield PolicyRequest("decide", (leaves, state, noise.draw(1)))
        return decision.env_actions if self.options.num_action_chunks == 1 else decision.env_actions[0]


def imitation_batch(
    pool: Demonstrations,
    rows: np.ndarray,
    noise: np.ndarray,
    augment: Callable[[Arrays], Arrays] = dict,
    dropped: np.ndarray | None = None,
) -> Batch:
    """Build a batch of some decisions of the pool, with advantage 1: ``-A logp`` is then the cross-entropy.

    ``noise`` [len(rows), pool.imitation_noise] follows the actions; ``augment`` changes the observations [n,
    ...]. ``dropped`` [len(rows)] bool: decisions without the indicator that ``pool.positive`` gives.
    """
    count, timesteps = len(rows), pool.granularity
    actions = pool.actions[rows]
    if pool.imitation_noise:
        actions = np.concatenate([actions, noise.astype(actions.dtype)], axis=1)
    executed = torch.from_numpy(pool.executed[rows])[:, None]
    seen = {name: leaf[rows] for name, leaf in pool.observations.items()}
    leaves = augment(seen)
    if pool.positive is not None:
        leaves[ADVANTAGE] = np.where(pool.positive[rows], 1, 2)
        if dropped is not None:
            leaves[ADVANTAGE][dropped] = 0
    inputs = ObservationInputs(
        {name: torch.from_numpy(leaf)[:, None] for name, leaf in leaves.items()},
        executed=executed if timesteps.actions > 1 else None,
    )
    mask = timesteps.mask(executed)
    return Batch(
        inputs=inputs,
        actions=torch.from_numpy(actions)[:, None],
        mask=mask,
        rollout_logprobs=torch.zeros(mask.shape),
        rewards=torch.zeros(count),
        group_ids=torch.arange(count),
        policy_version=torch.zeros(mask.shape, dtype=torch.int32),
        advantages=torch.ones(mask.shape),
        positions_per_reward=timesteps.positions_per_reward,
    )


def instructions_of(options: EnvConfig, seeds: Sequence[int]) -> list[str]:
    """List the different texts of an environment's first observations, in the order of their appearance.

    If `env.tasks` has texts, they are those. Starts are read until :data:`_NOTHING_NEW` of them, but at least
    :data:`_SAME_TEXT` of each task, had no new text: a reset may take a second."""
    written = [task.instruction for task in options.tasks if task.instruction is not None]
    if written:
        return list(dict.fromkeys(written))
    env = make_env_anywhere(options)
    try:
        names = [name for name, leaf in observation_leaves(env.observation_space).items() if isinstance(leaf, Text)]
        instructions: dict[str, None] = {}
        fewest, newest = _SAME_TEXT * max(1, len(options.tasks)), 0
        for tried, seed in enumerate(Mixture.of(options).in_turn(seeds) if names else ()):
            if tried >= fewest and tried - newest > _NOTHING_NEW * tried:
                break
            row = empty_leaves(env.observation_space, (1,))
            write_observation(row, 0, env.reset(seed=seed % 2**31)[0])
            known = len(instructions)
            instructions.update(dict.fromkeys(text_of(row[name]) for name in names))
            newest = tried if len(instructions) > known else newest
        return list(instructions)
    finally:
        close_quietly(env)
