"""From the typed configuration to what the algorithm layer and the learner read."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rlinf.algorithms import catalog
from rlinf.algorithms.objective import Objective
from rlinf.config import Config
from rlinf.config.plan.memory import needs_reference
from rlinf.learners.stage import Stage
from rlinf.types import SamplingParams


def algorithm_options(config: Config) -> dict[str, Any]:
    """The algorithm section as a flat mapping under the catalog's names; what is off is None."""
    options = asdict(config.algorithm)
    if options["overlong_penalty"]["coef"] == 0.0:
        options["overlong_penalty"] = None
    if options["rollout_correction"]["level"] == "none":
        options["rollout_correction"] = None
    if options["kl_controller"] == "fixed":
        options["target_kl"] = None
    return options


def make_objective(config: Config) -> Objective:
    """The loss that the configuration names, with the options that it reads."""
    options = algorithm_options(config)
    names = (*catalog.LOSS_OPTIONS, *catalog.LOSSES[config.algorithm.loss_type].options)
    read = {name: options[name] for name in names if options.get(name) is not None}
    return Objective(config.algorithm.loss_type, max_response_length=config.rollout.max_new_tokens, **read)


def training_stage(config: Config) -> Stage:
    """Reinforcement learning."""
    optimizer = config.learner.optimizer
    algorithm = config.algorithm
    return Stage(
        name="train",
        objective=make_objective(config),
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
        objective=Objective("reinforce"),
        lr=config.sft.lr,
        betas=config.learner.optimizer.betas,
        weight_decay=config.learner.optimizer.weight_decay,
        grad_clip=config.learner.optimizer.grad_clip,
        schedule=config.sft.schedule,
        warmup_steps=config.sft.warmup_steps,
        steps=config.sft.steps,
    )


def needs_values(config: Config) -> bool:
    return "values" in catalog.ADVANTAGES[config.algorithm.adv_type].needs or (
        "values" in catalog.LOSSES[config.algorithm.loss_type].needs
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
