"""Builds the stages of a learner from the configuration."""

from __future__ import annotations

from dataclasses import replace

from rlinf.algorithms.objective import Objective
from rlinf.config import Config
from rlinf.learners.stage import Stage
from rlinf.schema import OptimizerConfig


def stages_of(config: Config) -> tuple[Stage, ...]:
    """List the stages of a run, in their order."""
    # Reinforcement learning.
    algorithm = config.algorithm
    training = Stage(
        name="train",
        objective=Objective(algorithm, max_response_length=config.facts.conversation_tokens),
        optimizer=config.learner.optimizer,
        steps=config.run.max_steps,
        epochs=algorithm.update_epochs,
        minibatches=algorithm.num_minibatches,
        early_stop_imp_ratio=algorithm.early_stop_imp_ratio,
        reference=config.facts.keeps_reference,
    )
    return (_warm_start_stage(config), training) if config.sft.steps else (training,)


def _warm_start_stage(config: Config) -> Stage:
    """Supervised fine-tuning: with advantage 1, ``-A logp`` averaged over tokens is the cross-entropy; with those of
    ``algorithms.dpo`` it has the gradient of DPO."""
    sft, usual = config.sft, OptimizerConfig()
    optimizer = replace(
        config.learner.optimizer,
        lr=sft.lr,
        critic_lr=None,
        schedule=sft.schedule,
        warmup_steps=sft.warmup_steps,
        min_lr_ratio=usual.min_lr_ratio,
        eps=usual.eps,
        name=usual.name,
    )
    return Stage(
        name="sft",
        objective=Objective.of("reinforce"),
        optimizer=optimizer,
        steps=sft.steps,
        sampled=False,
        reference=sft.loss == "dpo",
    )
