"""Learning-rate schedules, which must fit into the run."""

from __future__ import annotations

from rlinf.config.context import Context
from rlinf.config.derived import has_warm_start, optimizer_steps_per_iteration

_OF_A_WARM_START = ("data", "cache", "evaluate_every")
"""Keys of `sft` that request one; rates and sizes may stay in a file while it is off."""


def check_schedule(context: Context) -> None:
    """Check that the warm-up ends within the run; otherwise it would never reach the learning rate."""
    optimizer, steps = context.config.learner.optimizer, context.config.run.max_steps
    each = optimizer_steps_per_iteration(context.config)
    if 0 < steps * each < optimizer.warmup_steps:
        message = (
            f"learner.optimizer.warmup_steps {optimizer.warmup_steps} is more than the {steps * each} optimiser steps "
            f"of the run (run.max_steps {steps} x {each})."
        )
        fix = f"Set it to {max(steps * each // 10, 1)}, for example."
        context.error("learner.optimizer.warmup_steps", message, fix)
    if optimizer.schedule == "constant":
        why = "is not read by schedule: constant."
        context.unread("learner.optimizer.min_lr_ratio", why, "Set schedule: cosine or linear.")
    if any(not 0 <= beta < 1 for beta in optimizer.betas):
        message = f"learner.optimizer.betas must lie in [0, 1), not {list(optimizer.betas)}."
        context.error("learner.optimizer.betas", message, "For example: [0.9, 0.999].")
    context.run(_check_optimizer)
    context.run(_check_warm_start)


def _check_optimizer(context: Context) -> None:
    """Check that each optimiser gets its own options, and that the learner has it."""
    optimizer, backend = context.config.learner.optimizer, context.config.learner.backend
    if optimizer.name == "adamw":
        context.unread("learner.optimizer.smoothing", "is not read by name: adamw.", "Add name: rmsprop.")
        return
    for key in ("betas", "weight_decay"):
        why = f"is not read by name: {optimizer.name}."
        context.unread(f"learner.optimizer.{key}", why, "Take it out.")
    if optimizer.smoothing >= 1:
        message = f"learner.optimizer.smoothing must lie in [0, 1), not {optimizer.smoothing:g}."
        context.error("learner.optimizer.smoothing", message, "For example: 0.99.")
    if backend != "torch":
        message = f"learner.optimizer.name: learner.backend: {backend} has no {optimizer.name}."
        context.error("learner.optimizer.name", message, "Set it to adamw, or learner.backend: torch.")


def _check_warm_start(context: Context) -> None:
    """How long it is, what it learns from, and keys that it does not read."""
    sft, steps = context.config.sft, context.config.run.max_steps
    if not has_warm_start(context.config):
        if not steps:
            message = "run.max_steps 0 (`rlinf sft` sets it) is for a warm start alone, and there is none."
            context.error("run.max_steps", message, "Write 1 or more, or set sft.steps.")
        for key in context.switched_off("sft.steps", _OF_A_WARM_START):
            context.unread(key, "is not read without a warm start.", "Set sft.steps: 200, for example.")
        return
    if sft.epochs is not None and sft.steps:
        message = f"sft.epochs {sft.epochs:g} and sft.steps {sft.steps} both set the length of the warm start."
        context.error("sft.epochs", message, "Keep one of them.")
    if sft.epochs is not None and sft.data is None:
        message = "sft.epochs counts passes over sft.data, and there is none."
        context.error("sft.epochs", message, "Set sft.steps instead, or sft.data.")
    for name in ("eval_data", "eval_fraction", "max_tokens") if sft.data is None else ("max_tasks", "hinted"):
        why = "is not read without sft.data." if sft.data is None else "is not read with sft.data."
        context.unread(f"sft.{name}", why, "Take it out.")
    hint = context.config.teacher.hint or ""
    if sft.hinted and ("{solution}" in hint or not ("{answer}" in hint or "{demonstration}" in hint)):
        message = (
            "sft.hinted writes prompts with teacher.hint, which must name {answer} or {demonstration}, and not "
            "{solution}: a warm start has no responses of a group."
        )
        context.error("sft.hinted", message, 'For example teacher.hint: "{prompt}\\nThe right answer is {answer}."')
    if sft.loss == "dpo":
        context.run(_check_preferences)
    else:
        why = "is not read by sft.loss: imitation."
        for name in ("dpo_beta", "dpo_imitation"):
            context.unread(f"sft.{name}", why, "Set sft.loss: dpo.")
    if sft.eval_fraction >= 1:
        message = f"sft.eval_fraction {sft.eval_fraction} leaves nothing to train on."
        context.error("sft.eval_fraction", message, "Set it to 0.05, for example.")
    if sft.eval_data is not None:
        why = "is not read with sft.eval_data."
        context.unread("sft.eval_fraction", why, "Keep one of them.")
    if sft.steps and sft.warmup_steps > sft.steps and context.changed("sft.warmup_steps"):
        message = f"sft.warmup_steps {sft.warmup_steps} is more than sft.steps {sft.steps}."
        fix = f"Set it to {max(sft.steps // 10, 1)}, for example."
        context.error("sft.warmup_steps", message, fix)


def _check_preferences(context: Context) -> None:
    """Pairs come from files, and the policy that they are measured against is that of the first step."""
    sft = context.config.sft
    if sft.data is None:
        message = "sft.loss: dpo learns from pairs of answers, and there are none."
        context.error("sft.data", message, "Set sft.data to a file of prompt, chosen, rejected.", at=("sft.loss",))
    if sft.dpo_beta == 0:
        message = "sft.dpo_beta 0 makes every pair worth nothing."
        context.error("sft.dpo_beta", message, "Set it to 0.1, for example.")
    measured = sft.eval_data is not None or sft.eval_fraction > 0
    if measured and context.config.run.init_from is not None:
        message = (
            "sft.eval_*: held-out pairs are measured against the policy as it was built, not as run.init_from loads."
        )
        fix = "Set policy.path to the exported policy, or take the held-out pairs out."
        context.error("run.init_from", message, fix)
