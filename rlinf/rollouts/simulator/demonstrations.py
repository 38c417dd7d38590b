"""What an environment's own demonstrator does, as decisions to imitate.

An environment that can demonstrate has a method ``expert_action()``: the action to take now, from whatever it knows of
itself. With ``perturbation`` some decisions are random instead and are not kept, so that the demonstrator is also seen
getting back on its way (Laskey et al. 2017, https://arxiv.org/abs/1703.09327, with random actions for noise).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Text

from rlinf.config.schema import EnvConfig
from rlinf.granularity import Granularity
from rlinf.models.policy_requests import PolicyFacts, PolicyRequest, RolloutCoroutine
from rlinf.rollouts.envs.make_env import make_env
from rlinf.rollouts.simulator.episodes import EpisodeTask
from rlinf.spaces import Arrays, empty_leaves, observation_leaves, write_observation
from rlinf.streams import numpy_generator
from rlinf.types import Batch, ObservationInputs


class NoDemonstrationsError(ValueError):
    """An environment that cannot demonstrate, or whose demonstrator never succeeds."""


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


@dataclass(frozen=True)
class Demonstrator:
    """Runs an environment's expert."""

    options: EnvConfig
    seed: int
    perturbation: float

    def play(self, policy: PolicyFacts, tasks: Sequence[EpisodeTask]) -> RolloutCoroutine[Demonstrations]:
        """One episode for each of ``tasks``; those that end without success are left out."""
        env = make_env(self.options)
        try:
            self._check(env)
            episodes = [self._episode(env, task) for task in tasks]
        finally:
            env.close()
        kept = [decision for episode in episodes if episode is not None for decision in episode]
        leaves = empty_leaves(env.observation_space, (len(kept),))
        for row, (observation, _, _) in enumerate(kept):
            write_observation(leaves, row, observation)
        actions = np.zeros((0, 0))
        if kept:
            actions = yield PolicyRequest("own_actions", (np.stack([chunk for _, chunk, _ in kept]),))
        counts = np.array([count for _, _, count in kept], dtype=np.int64)
        executed = np.arange(self.options.num_action_chunks) < counts[:, None]
        solved = sum(episode is not None for episode in episodes)
        return Demonstrations(leaves, actions, executed, policy.granularity, solved, len(tasks))

    def _check(self, env: gymnasium.Env) -> None:
        name = self.options.id
        if not env.has_wrapper_attr("expert_action"):
            raise NoDemonstrationsError(
                f"{name} has no demonstrator (a method expert_action()), which a warm start imitates: set sft.steps: 0"
            )
        if env.action_space != env.unwrapped.action_space:
            raise NoDemonstrationsError(
                f"{name}: a wrapper changes the actions, and the demonstrator speaks of those without it: "
                "take the wrapper out, or set sft.steps: 0"
            )

    def _episode(self, env: gymnasium.Env, task: EpisodeTask) -> list[tuple[Any, np.ndarray, int]] | None:
        """Its decisions (observation, chunk, actions that were carried out); None where it did not succeed."""
        expert = env.get_wrapper_attr("expert_action")
        draw = numpy_generator(self.seed, "demonstration", task.row)
        env.action_space.seed(int(draw.integers(2**31)))
        observation, _ = env.reset(seed=task.start_seed % 2**31)
        decisions: list[tuple[Any, np.ndarray, int]] = []
        chunk = self.options.num_action_chunks
        while True:
            before, thrown_off = observation, draw.random() < self.perturbation
            actions: list[np.ndarray] = []
            over = False
            while len(actions) < chunk and not over:
                actions.append(np.asarray(env.action_space.sample() if thrown_off else expert()))
                observation, _, terminated, truncated, info = env.step(actions[-1])
                over = bool(terminated or truncated)
            if not thrown_off:
                done = len(actions)
                actions += [actions[-1]] * (chunk - done)  # to a whole chunk; what fills it up is not imitated
                decisions.append((before, np.stack(actions) if chunk > 1 else actions[0], done))
            succeeded = bool(np.any(info.get(self.options.success_key, False)))
            if over or succeeded:
                return decisions if succeeded else None


def imitation_batch(pool: Demonstrations, rows: np.ndarray) -> Batch:
    """Some decisions of the pool as rows, with advantage 1: ``-A logp`` is then the cross-entropy."""
    count, timesteps = len(rows), pool.granularity
    executed = torch.from_numpy(pool.executed[rows])[:, None]
    inputs = ObservationInputs(
        {name: torch.from_numpy(leaf[rows])[:, None] for name, leaf in pool.observations.items()},
        executed=executed if timesteps.actions > 1 else None,
    )
    mask = timesteps.mask(executed)
    return Batch(
        inputs=inputs,
        actions=torch.from_numpy(pool.actions[rows])[:, None],
        mask=mask,
        rollout_logprobs=torch.zeros(mask.shape),
        rewards=torch.zeros(count),
        group_ids=torch.arange(count),
        policy_version=torch.zeros(mask.shape, dtype=torch.int32),
        advantages=torch.ones(mask.shape),
        positions_per_decision=timesteps.positions_per_decision,
        positions_per_reward=timesteps.positions_per_reward,
    )


def instructions_of(options: EnvConfig, seeds: Sequence[int]) -> list[str]:
    """The different texts of an environment's first observations, in the order of their appearance."""
    env = make_env(options)
    try:
        names = [name for name, leaf in observation_leaves(env.observation_space).items() if isinstance(leaf, Text)]
        found: dict[str, None] = {}
        for seed in seeds if names else ():
            row = empty_leaves(env.observation_space, (1,))
            write_observation(row, 0, env.reset(seed=seed % 2**31)[0])
            found.update(dict.fromkeys(row[name].tobytes().rstrip(b"\0").decode() for name in names))
        return list(found)
    finally:
        env.close()
