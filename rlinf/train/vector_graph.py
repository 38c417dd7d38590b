"""The processes of a simulator run: env workers step and act, learner ranks train."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from rlinf.cluster import Cluster, RankInfo, Resources
from rlinf.config import Config
from rlinf.config.checks.batch import collects_episodes
from rlinf.rollouts.env_worker import EnvWorker, EnvWorkerOptions, Layout
from rlinf.rollouts.make_env import EnvOptions
from rlinf.rollouts.vector import VectorOptions, VectorRollout, lane_ranges
from rlinf.streams import stream_seed
from rlinf.train.env_pool import EnvPool
from rlinf.train.graph import Graph, gpus_of
from rlinf.train.learner_ranks import torch_learner
from rlinf.train.options import training_stage
from rlinf.train.pools import LearnerPool
from rlinf.train.vector_evaluation import VectorEvaluator

OFF_POLICY = "sac"


def build_vector_graph(config: Config, cluster: Cluster, folder: Path) -> Graph:
    """Starts all workers and puts them together."""
    off_policy = config.algorithm.loss_type == OFF_POLICY
    envs = EnvPool(
        cluster.spawn(
            "env",
            functools.partial(_build_env, config),
            n=config.env.num_workers,
            resources=Resources(cpus=config.cluster.cpus_per_worker, spread=True),
        ),
        cluster,
    )
    if config.evaluation.video_every:
        envs.require_filming()
    rollout = VectorRollout(envs, vector_options(config))
    learners = cluster.spawn(
        "learner",
        functools.partial(_build_sac if off_policy else _build_learner, config, envs.spaces(), folder),
        n=config.learner.num_workers,
        resources=Resources(cpus=config.cluster.cpus_per_worker, gpus=gpus_of(config)[0]),
        rendezvous=config.learner.num_workers > 1,
    )
    learner = LearnerPool(learners, cluster)
    evaluator = VectorEvaluator(
        rollout, folder, size=config.evaluation.size, greedy=config.evaluation.temperature == 0.0
    )
    return Graph(
        rollout=rollout,
        learner=learner,
        send_weights=lambda version: rollout.load(learner.weights(version=version)),
        evaluate=evaluator.evaluate if config.evaluation.size else None,
        film=evaluator.film if config.evaluation.size and config.evaluation.video_every else None,
        on_policy=not off_policy,
        restarts=lambda: {"failures/env_workers": envs.restarts},
        notes={"env.vectorization": envs.vectorization()},
    )


def layout_of(config: Config) -> Layout:
    """Critics learn from fragments of a fixed length; everything else judges whole episodes."""
    return "episodes" if collects_episodes(config) else "fragments"


def env_options(config: Config) -> EnvOptions:
    env = config.env
    return EnvOptions(
        id=env.id,
        kwargs=env.kwargs,
        wrappers=tuple(env.wrappers),
        vectorization=env.vectorization,
        isolation=env.isolation,
        python=env.python,
        max_episode_steps=env.max_episode_steps,
        ignore_terminations=env.ignore_terminations,
        num_action_chunks=env.num_action_chunks,
        frame_stack=env.frame_stack,
        success_key=env.success_key,
        step_timeout_s=env.step_timeout_s,
        max_failures=env.max_failures,
    )


def worker_options(config: Config) -> EnvWorkerOptions:
    overrides = config.evaluation.env_kwargs
    return EnvWorkerOptions(
        env=env_options(config),
        seed=config.run.seed,
        layout=layout_of(config),
        num_steps=config.rollout.num_steps,
        auto_reset=config.env.auto_reset,
        next_observations=config.algorithm.loss_type == OFF_POLICY,
        evaluation_kwargs=None if overrides is None else {**config.env.kwargs, **overrides},
        evaluation_envs=-(-config.evaluation.num_envs // config.env.num_workers),
        traced_episodes=config.evaluation.video_episodes,
        films=config.evaluation.video_every > 0,
        cores=config.cluster.threads_per_worker,
    )


def vector_options(config: Config) -> VectorOptions:
    return VectorOptions(
        seed=config.run.seed,
        layout=layout_of(config),
        num_groups=config.rollout.batch_size,
        group_size=config.algorithm.group_size,
        max_failures=config.env.max_failures,
        normalize_rewards=config.env.normalize_rewards,
        gamma=config.algorithm.gamma,
        evaluation_seed=config.evaluation.seed,
        filmed_episodes=config.evaluation.video_episodes,
    )


def make_policy(config: Config, observation_space: Any, action_space: Any) -> Any:
    """The network, the same in every worker: its first weights are drawn from the run's seed."""
    import torch

    from rlinf.granularity import Levels
    from rlinf.models.actor_critic import ActorCritic, ActorCriticOptions
    from rlinf.models.soft_actor_critic import SoftActorCritic

    off_policy = config.algorithm.loss_type == OFF_POLICY
    kind = SoftActorCritic if off_policy else ActorCritic
    algorithm = config.algorithm
    levels = Levels(algorithm.reward_type, algorithm.logprob_type, algorithm.entropy_type)
    if config.policy.path is not None:
        if off_policy:
            return SoftActorCritic.from_pretrained(config.policy.path)
        return ActorCritic.from_pretrained(config.policy.path, levels)
    policy = config.policy
    options = ActorCriticOptions(
        hidden_sizes=tuple(policy.hidden_sizes),
        activation=policy.activation,
        encoder=policy.encoder,
        distribution=policy.distribution,
        init_log_std=policy.init_log_std,
        shared_critic=policy.shared_critic,
        recurrent=policy.recurrent,
        embedding_size=policy.embedding_size,
        normalize_observations=config.env.normalize_observations,
        num_action_chunks=config.env.num_action_chunks,
        **vars(levels),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(config.run.seed, "policy"))
        return kind(observation_space, action_space, options)


def _build_env(config: Config, info: RankInfo) -> EnvWorker:
    lanes = lane_ranges(config.env.num_envs, info.size)[info.rank]
    return EnvWorker(worker_options(config), lanes, functools.partial(make_policy, config))


def _build_learner(config: Config, spaces: tuple[Any, Any], _folder: Path, info: RankInfo) -> Any:
    return torch_learner(config, info, lambda _device: make_policy(config, *spaces), training_stage(config))


def _build_sac(config: Config, spaces: tuple[Any, Any], folder: Path, _info: RankInfo) -> Any:
    from rlinf.learners.sac import SacLearner, SacOptions

    algorithm, optimizer = config.algorithm, config.learner.optimizer
    return SacLearner(
        make_policy(config, *spaces),
        SacOptions(
            seed=config.run.seed,
            gamma=algorithm.gamma,
            lr=optimizer.lr,
            critic_lr=optimizer.critic_lr,
            tau=algorithm.sac_tau,
            alpha=algorithm.sac_alpha,
            target_entropy=algorithm.sac_target_entropy,
            replay_capacity=algorithm.replay_capacity,
            replay_start=algorithm.replay_start,
            replay_batch_size=algorithm.replay_batch_size,
            replay_ratio=algorithm.replay_ratio,
            n_step=algorithm.n_step,
            replay_folder=folder / "replay",
        ),
    )
