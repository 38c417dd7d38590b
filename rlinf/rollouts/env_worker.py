"""What runs inside one env worker: its environments, a copy of the policy, many steps per message."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import gymnasium
from torch import nn

from rlinf.rollouts.demonstrations import Demonstrations, Demonstrator, instructions_of
from rlinf.rollouts.episodes import EpisodeCollector, EpisodeRun, EpisodeTask, episodes_batch, trace_of
from rlinf.rollouts.filmable import filming_problem
from rlinf.rollouts.filmed_lanes import FilmedLanes
from rlinf.rollouts.fragments import FragmentCollector
from rlinf.rollouts.lanes import Lanes
from rlinf.rollouts.make_env import EnvOptions
from rlinf.rollouts.offscreen import offscreen
from rlinf.rollouts.records import EpisodeRecord, EpisodeTrace
from rlinf.rollouts.vectorize import choose_lanes, make_lanes
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
    traced_episodes: int = 0
    """Evaluation: the rows below this leave a trace."""
    films: bool = False
    """Whether evaluations may be filmed: chooses how MuJoCo draws without a display."""
    cores: int = 1


@dataclass
class RolloutPart:
    """One worker's share of a rollout."""

    batch: Batch | None
    """None where this worker had nothing to do, or nothing that survived."""
    episodes: list[EpisodeRecord]
    failures: Counter[str]
    env_steps: int
    traces: list[EpisodeTrace] = field(default_factory=list)
    problem: str | None = None
    """Why there is no video, where one was asked for."""


class EnvWorker:
    """One actor. ``build_policy`` makes the policy from the two spaces; its weights arrive with :meth:`load`.

    ``lane_ids`` are the numbers of this worker's lanes among all of the run.
    """

    def __init__(self, options: EnvWorkerOptions, lane_ids: range, build_policy: BuildPolicy) -> None:
        self._options = options
        if options.films:
            os.environ.update(offscreen())
        self._choice = choose_lanes(options.env, len(lane_ids), cores=options.cores)
        self._lanes: Lanes = make_lanes(replace(options.env, vectorization=self._choice.kind), len(lane_ids))
        self._build_policy = build_policy
        self._version = 0
        self._evaluation: EpisodeCollector | None = None
        self._filmed: tuple[FilmedLanes, EpisodeCollector] | None = None
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

    def evaluate(
        self,
        tasks: Sequence[EpisodeTask],
        greedy: bool = True,
        filmed: Sequence[EpisodeTask] = (),
        video: Path | None = None,
    ) -> RolloutPart:
        """Episodes on environments of their own, with the newest weights. No batch; training is not disturbed.

        ``filmed`` come first and are played into the file ``video``. An episode depends on its seed alone, so they are
        the episodes that would have been played without a camera.
        """
        runs, problem = [], None
        if filmed and video is not None:
            run, problem = self._film(filmed, greedy, video)
            runs.append(run)
        if tasks:
            if self._evaluation is None:
                lanes = make_lanes(
                    self._evaluation_env(),
                    max(1, min(self._options.evaluation_envs, len(tasks))),
                    cores=self._options.cores,
                )
                self._evaluation = self._collector(lanes)
            runs.append(self._evaluation.run(self._policy, tasks, self._version, greedy=greedy))
        episodes = [episode for run in runs for episode in run.episodes]
        return RolloutPart(
            None,
            [episode.record for episode in episodes],
            sum((run.failures for run in runs), Counter()),
            sum(run.env_steps for run in runs),
            [trace_of(episode) for episode in episodes if episode.task.row < self._options.traced_episodes],
            problem,
        )

    def demonstrate(self, tasks: Sequence[EpisodeTask], perturbation: float) -> Demonstrations:
        """What the environment's own demonstrator does, in the units of the policy's actions."""
        options = self._options
        return Demonstrator(options.env, options.seed, perturbation, self._policy).run(tasks)

    def instructions(self, starts: int) -> list[str]:
        """The different texts of so many starts, before any rollout."""
        return instructions_of(self._options.env, [stream_seed(self._options.seed, "text", n) for n in range(starts)])

    def filming_problem(self) -> str | None:
        """Why evaluation episodes can not be filmed where this worker runs; None where they can."""
        return filming_problem(self._evaluation_env())

    def _film(self, tasks: Sequence[EpisodeTask], greedy: bool, video: Path) -> tuple[EpisodeRun, str | None]:
        if self._filmed is None or self._filmed[0].num_lanes != len(tasks):
            filmed = FilmedLanes(self._evaluation_env(), len(tasks))
            self._filmed = filmed, self._collector(filmed)
        lanes, collector = self._filmed
        with lanes.filming(video, [task.start_seed for task in tasks]):
            run = collector.run(self._policy, tasks, self._version, greedy=greedy)
        return run, lanes.problem

    def _collector(self, lanes: Lanes) -> EpisodeCollector:
        env = self._options.env
        return EpisodeCollector(
            lanes, seed=self._options.seed, chunk=env.num_action_chunks, max_failures=env.max_failures
        )

    def _evaluation_env(self) -> EnvOptions:
        env, kwargs = self._options.env, self._options.evaluation_kwargs
        # A native vector env can not start episodes from given seeds.
        kind = "auto" if env.vectorization == "native" else env.vectorization
        return replace(env, kwargs=dict(env.kwargs if kwargs is None else kwargs), vectorization=kind)

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

    def vectorization(self) -> str:
        """How this worker steps its environments, and the measurements by which that was chosen."""
        return str(self._choice)

    def close(self) -> None:
        self._lanes.close()
        if self._filmed is not None:
            self._filmed[0].close()
