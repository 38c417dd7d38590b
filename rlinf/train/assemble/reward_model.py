"""The process of a learned reward."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from rlinf.base.random_streams import stream_seed
from rlinf.cluster import Cluster, RankInfo, Resources
from rlinf.config import Config
from rlinf.train.reward_model import LearnedReward
from rlinf.train.workers.learner_pool import LearnerPool
from rlinf.train.workers.reward_worker import RewardWorker


def learned_reward(config: Config, cluster: Cluster, policy_model: Callable[[], Any]) -> Sequence[LearnedReward]:
    """Empty where the environment's reward stands. ``policy_model`` makes the language model of the policy."""
    if config.reward_model.supervision == "none":
        return ()
    group = cluster.spawn(
        "reward_model",
        functools.partial(_build, config, policy_model),
        n=1,
        resources=Resources(cpus=config.cluster.cpus_per_worker, gpus=config.reward_model.gpus),
    )
    seed = stream_seed(config.run.seed, "reward")
    return (LearnedReward(LearnerPool(group, cluster), config.reward_model, seed=seed),)


def _build(config: Config, policy_model: Callable[[], Any], info: RankInfo) -> RewardWorker:
    import torch

    from rlinf.learners.reward import RewardLearner
    from rlinf.models.loading import activation_dtype, blank_reward_model, load_reward_model
    from rlinf.models.reward_model import RewardModel

    wanted = config.reward_model
    device = "cuda" if wanted.gpus > 0 else "cpu"
    dtype = activation_dtype(config.policy.dtype, device)
    if wanted.path is not None:
        model = load_reward_model(wanted.path, attention=config.policy.attention)
    else:
        model = blank_reward_model(policy_model().config)
    learner = RewardLearner(
        RewardModel(model, pack_rows=config.learner.pack, autocast=None if dtype == torch.float32 else dtype),
        lr=wanted.lr,
        seed=config.run.seed,
        micro_batch_tokens=config.learner.micro_batch_tokens,
        device=device,
    )
    return RewardWorker(learner, rank=info.rank)
