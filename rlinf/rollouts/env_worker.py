"""What runs inside one env worker: its environments, a copy of the policy, many steps per message."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import gymnasium
from torch import nn

from rlinf.rollouts.demonstrations import Demonstrations, Demonstrator, instructions_of
from rlinf.rollouts.episodes import EpisodeCollector, EpisodeTask, episodes_batch
from rlinf.rollouts.fragments import FragmentCollector
from rlinf.rollouts.lanes import Lanes
from rlinf.rollouts.make_env import EnvOptions
from rlinf.rollouts.records import EpisodeRecord
from rlinf.rollouts.vectorize import make_lanes
from rlinf.streams import stream_seed
from rlinf.types import Batch, WeightUpdate

Layout = Literal["fragments", "episodes"]
BuildPolicy = Callable[[gymnasium.Space, gymnasium.Space], nn.Module]


@dataclass(frozen=True)
class EnvWorkerOptions:
    """What every env worker of a run is built from."""

    env: EnvOptions
    seed: int
    layout: Layout = "fragments"
    num_steps: int = 128
    """`fragments`: decisions per lane and call."""
    auto_reset: bool = True
    next_observations: bool = False
    evaluation_kwargs: Mapping[str, Any] | None = None
    """Constructor arguments of evaluation environments; None takes those of training."""
    evaluation_envs: int = 1
    """Side by side, on this worker."""
    cores: int = 1


@dataclass
class RolloutPart:
    """One worker's share of a rollout."""

    batch: Batch | None
    """None where this worker had nothing to do, or nothing that survived."""
    episodes: list[EpisodeRecord]
    failures: Counter[str]
    env_steps: int


class EnvWorker:
    """One actor. ``build_policy`` makes the policy from the two spaces; its weights arrive with :meth:`load`.

    ``lane_ids`` are the numbers of this worker's lanes among all of the run.
    """

    def __init__(self, options: EnvWorkerOptions, lane_ids: range, build_policy: BuildPolicy) -> None:
        self._options = options
        self._lanes: Lanes = make_lanes(options.env, len(lane_ids), cores=options.cores)
        self._build_policy = build_policy
        self._version = 0
        self._evaluation: EpisodeCollector | None = None
        env = options.env
        self._fragments: FragmentCollector | None = None
        if options.layout == "fragments":
            self._fragments = FragmentCollector(
                self._lanes,
                lane_ids,
                seed=options.seed,
                num_steps=options.num_steps,
                chunk=env.num_action_chunks,
                max_failures=env.max_failures,
                next_observations=options.next_observations,
            )
        else:
            self._episodes = EpisodeCollector(
                self._lanes,
                seed=options.seed,
                chunk=env.num_action_chunks,
                max_failures=env.max_failures,
                auto_reset=options.auto_reset,
            )

    @functools.cached_property
    def _policy(self) -> Any:
        """Made when it is first needed: what it is built from may come from the environments."""
        return self._build_policy(self._lanes.observation_space, self._lanes.action_space).eval()

    def load(self, update: WeightUpdate) -> None:
        """Takes weights and statistics; every later decision follows them."""
        self._policy.load_state_dict(dict(update.tensors), strict=True)
        self._version = update.version

    def collect(self, step: int, tasks: Sequence[EpisodeTask] = ()) -> RolloutPart:
        """This worker's rows of the batch of optimiser step ``step``; whole episodes are named by ``tasks``."""
        if self._fragments is not None:
            part = self._fragments.collect(self._policy, step, self._version)
            return RolloutPart(part.batch, part.episodes, part.failures, part.env_steps)
        run = self._episodes.run(self._policy, tasks, step)
        batch = episodes_batch(self._policy, run.episodes, self._version) if run.episodes else None
        return RolloutPart(batch, [episode.record for episode in run.episodes], run.failures, run.env_steps)

    def evaluate(self, tasks: Sequence[EpisodeTask], greedy: bool = True) -> RolloutPart:
        """Episodes on environments of their own, with the newest weights. No batch; training is not disturbed."""
        if self._evaluation is None:
            self._evaluation = self._evaluation_collector(max(1, min(self._options.evaluation_envs, len(tasks))))
        run = self._evaluation.run(self._policy, tasks, self._version, greedy=greedy)
        return RolloutPart(None, [episode.record for episode in run.episodes], run.failures, run.env_steps)

    def demonstrate(self, tasks: Sequence[EpisodeTask], perturbation: float) -> Demonstrations:
        """What the environment's own demonstrator does, in the units of the policy's actions."""
        options = self._options
        return Demonstrator(options.env, options.seed, perturbation, self._policy).run(tasks)

    def instructions(self, starts: int) -> list[str]:
        """The different texts of so many starts, before any rollout."""
        return instructions_of(self._options.env, [stream_seed(self._options.seed, "text", n) for n in range(starts)])

    def _evaluation_collector(self, num_lanes: int) -> EpisodeCollector:
        env = self._options.env
        kwargs = self._options.evaluation_kwargs
        # A native vector env can not start episodes from given seeds.
        kind = "auto" if env.vectorization == "native" else env.vectorization
        env = replace(env, kwargs=dict(env.kwargs if kwargs is None else kwargs), vectorization=kind)
        return EpisodeCollector(
            make_lanes(env, num_lanes, cores=self._options.cores),
            seed=self._options.seed,
            chunk=env.num_action_chunks,
            max_failures=env.max_failures,
        )

    def state_dict(self) -> dict[str, Any]:
        """What the next rollout depends on beside the weights; empty for whole episodes, which begin anew each time."""
        return {} if self._fragments is None else self._fragments.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._fragments is not None:
            self._fragments.load_state_dict(state)

    def skip_episodes(self, times: int) -> None:
        """Numbers the coming episodes from so many millions on, away from those that a worker before it ran."""
        if self._fragments is not None:
            self._fragments.skip_episodes(times * 1_000_000)

    def spaces(self) -> tuple[gymnasium.Space, gymnasium.Space]:
        """Of one environment: observation and action."""
        return self._lanes.observation_space, self._lanes.action_space

    def close(self) -> None:
        self._lanes.close()
