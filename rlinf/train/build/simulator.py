"""The processes of a simulator run: env workers step and act, learner ranks train."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from rlinf.cluster import Cluster, RankInfo, Resources
from rlinf.cluster.weights.transport import choose
from rlinf.config import Config
from rlinf.config.facts import acts_in, is_off_policy
from rlinf.interfaces import Learner, Policy
from rlinf.rollouts.simulator.rollout import VectorRollout, env_ranges
from rlinf.train.build.devices import Devices
from rlinf.train.build.learner import placed, torch_learner
from rlinf.train.build.simulator_policy import make_policy
from rlinf.train.build.tokenizer import kept_tokenizer
from rlinf.train.evaluation.simulator import VectorEvaluator
from rlinf.train.graph import Graph
from rlinf.train.imitation import Imitation
from rlinf.train.preparation import OffPolicy, OnPolicy
from rlinf.train.workers.env_pool import EnvPool
from rlinf.train.workers.learner_pool import LearnerPool
from rlinf.train.workers.learner_worker import LearnerWorker
from rlinf.train.workers.served_env_pool import ServedEnvPool
from rlinf.train.workers.simulator_workers import PolicyServerWorker, SimulatorWorker

# How many starts are asked for their instruction: enough to meet every word of a task.
_TOKENIZER_STARTS = 500


def build_vector_graph(config: Config, cluster: Cluster, folder: Path) -> Graph:
    """Starts all workers and puts them together."""
    devices, off_policy = Devices.of(config), is_off_policy(config)
    envs = EnvPool(
        cluster.spawn(
            "env",
            functools.partial(_build_env, config, folder),
            n=config.env.num_workers,
            resources=Resources(cpus=config.cluster.cpus_per_worker, spread=True),
        )
    )
    if config.evaluation.video_every:
        envs.require_filming()
    if config.policy.name == "vla" and config.policy.path is None:
        _keep_tokenizer(config, envs, folder)
    if acts_in(config) == "sampler":
        envs = _with_samplers(config, envs, cluster, folder)
    rollout = VectorRollout(envs, config)
    warm_start = Imitation(rollout, config.sft, seed=config.run.seed)
    learners = cluster.spawn(
        "learner",
        functools.partial(_build_learner, config, envs.spaces(), folder),
        n=config.learner.num_workers,
        resources=Resources(cpus=config.cluster.cpus_per_worker, gpus=devices.learner),
        rendezvous=config.learner.num_workers > 1,
    )
    on_gpus = acts_in(config) == "sampler" and devices.all_on_gpus
    envs.acting.connect(choose(config, learners, envs.acting.group, cuda=on_gpus))
    learner = LearnerPool(learners, cluster)
    evaluator = VectorEvaluator(rollout, config.evaluation, folder)
    return Graph(
        rollout=rollout,
        learner=learner,
        preparation=OffPolicy() if off_policy else OnPolicy(config, learner),
        send_weights=envs.acting.send_weights,
        evaluate=evaluator.evaluate if config.evaluation.size else None,
        film=evaluator.film if config.evaluation.size and config.evaluation.video_every else None,
        overlaps=config.rollout.ahead > 0,
        warm_start_batch=None if off_policy else warm_start.batch,
        restarts=envs.numbers,
        notes={"env.vectorization": envs.vectorization()},
    )


def _with_samplers(config: Config, envs: EnvPool, cluster: Cluster, folder: Path) -> EnvPool:
    """The same env workers, with a policy that acts in sampler actors."""
    samplers = cluster.spawn(
        "sampler",
        functools.partial(_build_sampler, config, envs.spaces(), folder),
        n=config.rollout.num_samplers,
        resources=Resources(cpus=config.cluster.cpus_per_worker, gpus=Devices.of(config).sampler),
    )
    return ServedEnvPool(envs.group, samplers, cluster)


def _build_env(config: Config, folder: Path, info: RankInfo) -> SimulatorWorker:
    env_indices = env_ranges(config.env.num_envs, info.size)[info.rank]
    build = functools.partial(make_policy, config, tokenizer=folder / "tokenizer")
    return SimulatorWorker(config, env_indices, build)


def _build_sampler(config: Config, spaces: tuple[Any, Any], folder: Path, _info: RankInfo) -> PolicyServerWorker:
    import torch

    device = torch.device(Devices.of(config).sampler_device)
    return PolicyServerWorker(make_policy(config, *spaces, tokenizer=folder / "tokenizer"), device)


def _keep_tokenizer(config: Config, envs: EnvPool, folder: Path) -> None:
    """In the run directory before any policy is made: the language tower's, or one trained on instructions."""
    wanted, language = config.policy.tokenizer, config.policy.vla.language

    def make() -> Any:
        from rlinf.models.loading import load_tokenizer
        from rlinf.models.tokenizer import train_tokenizer

        path = wanted.path or language.path
        if path is not None:
            return load_tokenizer(path)
        texts = envs.instructions(_TOKENIZER_STARTS) or [config.policy.vla.task or ""]
        return train_tokenizer(texts, vocab_size=wanted.vocab_size, split_digits=wanted.split_digits, split_words=True)

    kept_tokenizer(folder / "tokenizer", make)


def _build_learner(config: Config, spaces: tuple[Any, Any], folder: Path, info: RankInfo) -> LearnerWorker:
    bucket = config.learner.weight_bucket_mb << 20
    if is_off_policy(config):
        return LearnerWorker(_sac_learner(config, spaces, folder, info), rank=info.rank, bucket_bytes=bucket)

    def policy(_device: str) -> Policy:
        return make_policy(config, *spaces, tokenizer=folder / "tokenizer")

    return LearnerWorker(torch_learner(config, info, policy), rank=info.rank, bucket_bytes=bucket)


def _sac_learner(config: Config, spaces: tuple[Any, Any], folder: Path, info: RankInfo) -> Learner:
    from rlinf.learners.sac import SacLearner

    device, ranks = placed(config, info)
    return SacLearner(
        make_policy(config, *spaces),
        config.algorithm,
        config.learner.optimizer,
        seed=config.run.seed,
        replay_folder=folder / "replay" / f"rank_{info.rank}" if info.size > 1 else folder / "replay",
        device=device,
        rank=info.rank,
        size=info.size,
        ranks=ranks,
    )
