"""From the typed configuration to what the algorithm layer and the learner read."""

from __future__ import annotations

from rlinf.algorithms import catalog
from rlinf.algorithms.objective import Objective
from rlinf.config import Config
from rlinf.config.facts import collects_episodes
from rlinf.config.lengths import conversation_tokens
from rlinf.config.plan.memory import needs_reference
from rlinf.learners.stage import Stage
from rlinf.types import SamplingParams


def holds_fragments(config: Config) -> bool:
    """Whether a row of a batch is a stretch of steps in a simulator, and no whole episode or conversation."""
    return config.policy.name != "causal_lm" and not collects_episodes(config)


def training_stage(config: Config) -> Stage:
    """Reinforcement learning."""
    optimizer = config.learner.optimizer
    algorithm = config.algorithm
    return Stage(
        name="train",
        objective=Objective(algorithm, max_response_length=conversation_tokens(config)),
        lr=optimizer.lr,
        critic_lr=optimizer.critic_lr,
        betas=optimizer.betas,
        eps=optimizer.eps,
        weight_decay=optimizer.weight_decay,
        grad_clip=optimizer.grad_clip,
        schedule=optimizer.schedule,
        warmup_steps=optimizer.warmup_steps,
        min_lr_ratio=optimizer.min_lr_ratio,
        steps=config.run.max_steps,
        epochs=algorithm.update_epochs,
        minibatches=algorithm.num_minibatches,
        early_stop_imp_ratio=algorithm.early_stop_imp_ratio,
        reference=needs_reference(config),
    )


def warm_start_stage(config: Config) -> Stage:
    """Supervised fine-tuning: with advantage 1, ``-A logp`` averaged over tokens is the cross-entropy."""
    return Stage(
        name="sft",
        objective=Objective.of("reinforce"),
        lr=config.sft.lr,
        betas=config.learner.optimizer.betas,
        weight_decay=config.learner.optimizer.weight_decay,
        grad_clip=config.learner.optimizer.grad_clip,
        schedule=config.sft.schedule,
        warmup_steps=config.sft.warmup_steps,
        steps=config.sft.steps,
    )


def needs_values(config: Config) -> bool:
    """Whether the critic has to be asked before advantages are made."""
    algorithm = config.algorithm
    return (
        "values" in catalog.estimator(algorithm.adv_type).needs or "values" in catalog.loss(algorithm.loss_type).needs
    )


def sampling_params(config: Config, stop_token_ids: tuple[int, ...] = ()) -> SamplingParams:
    rollout = config.rollout
    return SamplingParams(
        max_new_tokens=rollout.max_new_tokens,
        temperature=rollout.temperature,
        top_k=rollout.top_k,
        top_p=rollout.top_p,
        repetition_penalty=rollout.repetition_penalty,
        stop_token_ids=stop_token_ids,
    )
