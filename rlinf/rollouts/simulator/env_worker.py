"""Runs inside one env worker: its environments, a copy of the policy, many steps per message."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import gymnasium
import numpy as np

from rlinf.algorithms.catalog import columns_of
from rlinf.base.random_streams import rollout_key, stream_seed
from rlinf.data.messages import Metrics, WeightUpdate
from rlinf.interfaces import ActingPolicy
from rlinf.models.checkpoint_names import by_expert
from rlinf.models.policy_requests import PolicyFacts, PolicyRequest, RolloutCoroutine
from rlinf.models.weight_digest import DigestRequest, TensorDigest, held_digests
from rlinf.models.weight_update import WeightTaker
from rlinf.rollouts.isolation.start_states import ignores_state_ids
from rlinf.rollouts.simulator.anchors import anchor_ids
from rlinf.rollouts.simulator.demonstrations import Demonstrations, Demonstrator, instructions_of
from rlinf.rollouts.simulator.episodes import (
    EpisodeCollector,
    EpisodeRun,
    EpisodeTask,
    episodes_batch,
    joined,
    trace_of,
)
from rlinf.rollouts.simulator.fragments import FragmentCollector
from rlinf.rollouts.simulator.local_images import Leaves, keep_images_local
from rlinf.rollouts.simulator.pipelined import Notice, PipelinedRollout, WorkerMessage
from rlinf.rollouts.simulator.recorded import RecordedDemonstrator
from rlinf.rollouts.simulator.records import RolloutPart
from rlinf.rollouts.vec_env.mixture import Mixture
from rlinf.rollouts.vec_env.offscreen import FilmingTrial, offscreen
from rlinf.rollouts.vec_env.vec_env import VecEnv, require_alike
from rlinf.rollouts.vec_env.vectorize import choose_vec_env, make_seeded_vec_env, make_vec_env
from rlinf.rollouts.video.film_track import FilmTrack
from rlinf.rollouts.video.filmable import try_filming
from rlinf.rollouts.video.filmed import FilmedVecEnv
from rlinf.schema import EnvConfig
from rlinf.schema.derived import RolloutSections, with_words
from rlinf.schema.run import Words

CollectorName = Literal["collect", "evaluate", "demonstrate"]
Given = ParamSpec("Given")
Value = TypeVar("Value")
BuildPolicy = Callable[[gymnasium.Space, gymnasium.Space], ActingPolicy]


def _with_own_policy(
    course: Callable[Concatenate[EnvWorker, PolicyFacts, int, Given], PipelinedRollout[Value]],
) -> Callable[Concatenate[EnvWorker, Given], Value]:
    """Run a rollout from beginning to end, with the worker's copy of the policy."""

    @functools.wraps(course)
    def call(self: EnvWorker, /, *args: Given.args, **options: Given.kwargs) -> Value:
        policy = self._policy
        return course(self, PolicyFacts.of(policy), self._version, *args, **options).drive(policy)

    return call


class EnvWorker:
    """One actor. ``build_policy`` makes the policy from the two spaces; its weights arrive with :meth:`load`.

    If the policy acts elsewhere it is never made here: :meth:`begin` and :meth:`answer` do what :meth:`collect`
    and the others do, with questions and answers as messages.

    ``global_indices`` are the numbers of this worker's sub-environments among all of the run; ``cores`` its CPUs.
    """

    def __init__(
        self, config: RolloutSections, global_indices: range, build_policy: BuildPolicy, *, cores: int = 1
    ) -> None:
        self._config, self._env = config, config.facts.training_env
        if config.evaluation.video_every:
            os.environ.update(offscreen())  # before MuJoCo chooses how to draw
        self._cores = cores
        self._choice = choose_vec_env(self._env, len(global_indices), cores=self._cores)
        self._vec_env: VecEnv = make_vec_env(replace(self._env, vectorization=self._choice.kind), len(global_indices))
        self._build_policy = build_policy
        self._version = 0
        self._weights = WeightTaker()
        self._evaluators: dict[Words | None, EpisodeCollector] = {}
        """By the instructions of the environments: their own (None), or an entry of `evaluation.words`."""
        self._trajectory: PipelinedRollout[Any] | None = None
        self._filmed: tuple[FilmedVecEnv, EpisodeCollector] | None = None
        self._stepped = False
        """Whether environments made a step before this process took over."""
        env, seed = config.env, config.run.seed
        self._fragments: FragmentCollector | None = None
        if config.facts.collects_episodes:
            self._episodes = self._collector(self._vec_env, auto_reset=env.auto_reset)
        else:
            self._fragments = FragmentCollector(
                self._vec_env,
                global_indices,
                seed=seed,
                num_steps=config.rollout.num_steps,
                chunk=env.num_action_chunks,
                max_failures=env.max_failures,
                env_id=env.id,
                next_observations=config.facts.off_policy,
                stages=config.rollout.pipeline_stages,
                mixture=Mixture.of(env),
                num_envs=env.num_envs,
            )

    @functools.cached_property
    def _policy(self) -> ActingPolicy:
        """Made when it is first needed: what it is built from may come from the environments."""
        return self._build_policy(self._vec_env.observation_space, self._vec_env.action_space).eval()

    def load(self, update: WeightUpdate) -> Metrics:
        """Load weights and statistics; every later decision follows them."""
        self._version = update.version
        return self._weights.take(self._policy, update)

    def held_digests(self, requests: Mapping[str, DigestRequest]) -> dict[str, TensorDigest]:
        """Read back the weights and statistics in ``requests`` from the policy."""
        return held_digests(by_expert(self._policy.state_dict(keep_vars=True).items()), requests)

    def begin(
        self, method: CollectorName, facts: PolicyFacts, version: int, *arguments: Any
    ) -> tuple[Notice[Any], list[PolicyRequest] | Leaves]:
        """Start ``collect``, ``evaluate`` or ``demonstrate`` with a policy elsewhere; return its first questions.

        What was under way before is forgotten.
        """
        trajectories: dict[CollectorName, Callable[..., PipelinedRollout[Any]]]
        trajectories = {"collect": self._collection, "evaluate": self._evaluation, "demonstrate": self._demonstration}
        self._trajectory = trajectories[method](facts, version, *arguments)
        return _halves(self._trajectory.begin())

    def answer(self, stage: int, answer: Any) -> tuple[Notice[Any], list[PolicyRequest] | Leaves]:
        """Take the policy's answer to a stage; return the next questions, or the result and its images separately."""
        assert self._trajectory is not None
        return _halves(self._trajectory.answer(stage, answer))

    def _collection(
        self, facts: PolicyFacts, version: int, step: int, tasks: Sequence[EpisodeTask] = (), round: int = 0
    ) -> PipelinedRollout[RolloutPart]:
        """Collect this worker's rows of a batch of training iteration ``step``; whole episodes are named by
        ``tasks``."""
        fragments, stages, key = self._fragments, self._config.rollout.pipeline_stages, rollout_key(step, round)
        if fragments is None:
            return self._episode_trace(facts, version, key, tasks, stages)
        columns = fragments.open(facts, key)

        played = [fragments.fill(columns, stage) for stage in range(stages)]
        return PipelinedRollout(played, lambda: fragments.close(facts, columns, version))

    def _episode_trace(
        self, facts: PolicyFacts, version: int, key: tuple[int, ...], tasks: Sequence[EpisodeTask], stages: int
    ) -> PipelinedRollout[RolloutPart]:
        runs: list[EpisodeRun] = []

        def play(env_indices: list[int], mine: Sequence[EpisodeTask]) -> RolloutCoroutine[None]:
            runs.append((yield from self._episodes.play(facts, mine, key, env_indices=env_indices)))

        def end() -> RolloutCoroutine[RolloutPart]:
            run = joined(runs)
            batch = None
            if run.episodes:
                batch = yield from episodes_batch(facts, run.episodes, version)
                if "anchor_ids" in columns_of(self._config.algorithm.adv_type):
                    batch = batch.replace(anchor_ids=anchor_ids(run.episodes, facts.granularity, batch.mask))
            return RolloutPart(
                batch,
                [episode.record for episode in run.episodes],
                run.failures,
                run.env_steps,
                last_failure=self._vec_env.last_failure,
            )

        env_indices = [part.tolist() for part in np.array_split(np.arange(self._vec_env.num_envs), stages)]
        shares = [[tasks[row] for row in rows] for rows in np.array_split(np.arange(len(tasks)), stages)]
        return PipelinedRollout([play(*stage) for stage in zip(env_indices, shares, strict=True)], end)

    def _demonstration(
        self, facts: PolicyFacts, _version: int, tasks: Sequence[EpisodeTask], perturbation: float, round: int = 0
    ) -> PipelinedRollout[Demonstrations]:
        """Actions of the demonstrator, live or recorded, in the units of the policy's actions.

        From round 1 on the policy makes some of the decisions (`sft.dagger_share`).
        """
        sft = self._config.sft
        labelled = self._config.facts.labelled
        if sft.dataset is not None:
            recorded = RecordedDemonstrator(
                sft.dataset, self._env.num_action_chunks, sft.dataset_stride, sft.rename, labelled
            )
            return PipelinedRollout([], lambda: recorded.play(facts, self.spaces(), [task.row for task in tasks]))
        share, gate = (0.0 if sft.gate else sft.dagger_share, sft.gate) if round else (0.0, None)
        demonstrator = Demonstrator(
            self._env, self._config.run.seed, perturbation, sft.expert, share, gate, round, labelled
        )
        return PipelinedRollout([], lambda: demonstrator.play(facts, tasks))

    def _evaluation(
        self,
        facts: PolicyFacts,
        version: int,
        tasks: Sequence[EpisodeTask],
        greedy: bool = True,
        words: Words | None = None,
        filmed: Sequence[EpisodeTask] = (),
        video: Path | None = None,
    ) -> PipelinedRollout[RolloutPart]:
        """Episodes on environments of their own, with the newest weights. No batch; training is not disturbed.

        ``filmed`` come first and are played into the file ``video``. An episode depends on its seed alone, so they are
        the episodes that would have been played without a camera.
        """

        def end() -> RolloutCoroutine[RolloutPart]:
            runs: list[EpisodeRun] = []
            problem, last_failure, other_starts = None, "", False
            tracks: dict[int, FilmTrack | None] = {}
            if filmed and video is not None:
                # A sub-environment for each filmed episode, made with the first film.
                if self._filmed is None or self._filmed[0].num_envs != len(filmed):
                    vec_env = FilmedVecEnv(self._evaluation_env(), len(filmed))
                    self._filmed = vec_env, self._collector(vec_env)
                vec_env, collector = self._filmed
                with vec_env.filming(video, [task.start_seed for task in filmed]):
                    runs.append((yield from collector.play(facts, filmed, (version,), greedy=greedy, brief=True)))
                problem, last_failure = vec_env.problem, collector.vec_env.last_failure
                other_starts = collector.other_starts
                tracks = {task.start_seed: vec_env.track(task.start_seed) for task in filmed}
            if tasks:
                evaluator = self._evaluator(len(tasks), words)
                runs.append((yield from evaluator.play(facts, tasks, (version,), greedy=greedy, brief=True)))
                # Those without a camera may have gone well.
                last_failure = evaluator.vec_env.last_failure or last_failure
                other_starts |= evaluator.other_starts
                if words is not None:  # environments of a simulator may take gigabytes: one set of them is enough
                    self._evaluators.pop(words).vec_env.close()
            run = joined(runs)
            return RolloutPart(
                None,
                [episode.record for episode in run.episodes],
                run.failures,
                run.env_steps,
                [
                    trace_of(episode, self.spaces(), tracks.get(episode.task.start_seed))
                    for episode in run.episodes
                    if episode.task.row < self._config.evaluation.video_episodes
                ],
                problem,
                last_failure,
                other_starts,
            )

        return PipelinedRollout([], end)

    collect = _with_own_policy(_collection)
    evaluate = _with_own_policy(_evaluation)
    demonstrate = _with_own_policy(_demonstration)

    def collect_remote(
        self, step: int, tasks: Sequence[EpisodeTask] = (), round: int = 0
    ) -> tuple[RolloutPart, Leaves]:
        """As ``collect``, with the images of the batch separate."""
        return keep_images_local(self.collect(step, tasks, round))

    def _evaluator(self, episodes: int, words: Words | None) -> EpisodeCollector:
        if words not in self._evaluators:
            side_by_side = -(-self._config.evaluation.num_envs // self._config.env.num_workers)
            count = max(1, min(side_by_side, episodes))
            vec_env = make_seeded_vec_env(self._evaluation_env(words), count, cores=self._cores)
            require_alike(self.spaces(), (vec_env.observation_space, vec_env.action_space), "an evaluation environment")
            self._evaluators[words] = self._collector(vec_env)
        return self._evaluators[words]

    def instructions(self, starts: int) -> list[str]:
        """Return the distinct instructions of ``starts`` start states, before any rollout."""
        return instructions_of(self._env, [stream_seed(self._config.run.seed, "text", n) for n in range(starts)])

    def try_filming(self) -> FilmingTrial:
        """Whether evaluation episodes can be filmed on this worker's machine."""
        return try_filming(self._evaluation_env())

    def ignores_state_ids(self) -> bool:
        """Whether all numbered start states, of training or of evaluations, begin alike."""
        return any(ignores_state_ids(env) for env in (self._env, self._evaluation_env()))

    def _collector(self, vec_env: VecEnv, *, auto_reset: bool = True) -> EpisodeCollector:
        env = self._env
        collector = EpisodeCollector(
            vec_env,
            seed=self._config.run.seed,
            chunk=env.num_action_chunks,
            max_failures=env.max_failures,
            env_id=env.id,
            auto_reset=auto_reset,
            mixture=Mixture.of(env),
        )
        collector.failure_count.take_over(self._stepped)
        return collector

    def _evaluation_env(self, words: Words | None = None) -> EnvConfig:
        return with_words(self._config.facts.evaluation_env, words)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that the next rollout depends on in addition to the weights.

        For whole episodes, which begin again, it is next to nothing."""
        stepped = {"stepped": self._training.failure_count.stepped}
        return stepped if self._fragments is None else {**self._fragments.state_dict(), **stepped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._fragments is not None:
            self._fragments.load_state_dict(state)
        self._take_over(state.get("stepped", True))  # older checkpoints lack it

    def skip_episodes(self, times: int) -> None:
        """Offsets episode ids, so that a restarted worker never reuses its predecessor's seeds."""
        if self._fragments is not None:
            self._fragments.skip_episodes(times * 1_000_000)
        self._take_over(True)

    def _take_over(self, stepped: bool) -> None:
        """Count an environment that made steps before this process as one that has stepped."""
        self._stepped = stepped
        self._training.failure_count.take_over(stepped)

    @property
    def _training(self) -> FragmentCollector | EpisodeCollector:
        return self._episodes if self._fragments is None else self._fragments

    def spaces(self) -> tuple[gymnasium.Space, gymnasium.Space]:
        """Return the spaces of one environment: observation and action."""
        return self._vec_env.observation_space, self._vec_env.action_space

    def vectorization(self) -> str:
        """How this worker steps its environments, and the measurements by which that was chosen."""
        return str(self._choice)

    def render_fps(self) -> float:
        """Return the steps of a second that the environment declares; 0 if it declares none."""
        # Vector environments of a simulator's own need not have metadata.
        fps = (getattr(self._vec_env, "metadata", None) or {}).get("render_fps")
        return float(fps) if isinstance(fps, (int, float)) else 0.0

    def close(self) -> None:
        """Close the environments of rollouts, evaluations and films."""
        self._vec_env.close()
        for evaluator in self._evaluators.values():
            evaluator.vec_env.close()
        if self._filmed is not None:
            self._filmed[0].close()


def _halves(message: WorkerMessage[Any]) -> tuple[Notice[Any], list[PolicyRequest] | Leaves]:
    """Split a message in two halves: for the process that carries it, and for those that read it."""
    notice, questions = Notice.of(message)
    if not isinstance(notice.result, RolloutPart):
        return notice, questions
    result, leaves = keep_images_local(notice.result)
    return replace(notice, result=result), leaves
