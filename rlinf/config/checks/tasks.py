"""`env.tasks`: several tasks of a simulator, or a mixture of text environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlinf.config.context import Context
from rlinf.config.derived import is_text, text_env_name
from rlinf.schema.derived import is_agent, task_name
from rlinf.schema.env import TaskConfig

INTERVAL_PARTS = ("ci_high", "ci_low", "n")
_SIMULATORS = "For example: [{name: touch, kwargs: {task: touch}}, {name: push, kwargs: {task: push}, weight: 2}]."
_TEXT = (
    "For example: [{name: sums, id: 'rlinf_envs:rlinf/ReasoningGym-v0', kwargs: {task: chain_sum}, weight: 2}, "
    "{id: 'rlinf_envs:rlinf/Math-v0', kwargs: {path: train.jsonl}}]."
)


def check_tasks(context: Context) -> None:
    """Each task has a name of its own in the metrics, a share, and no key that its kind of run does not read."""
    tasks, text = context.config.env.tasks, is_text(context.config)
    if not tasks:
        return
    if text:
        names = [text_env_name(context.config, task) for task in tasks]
    else:
        names = [task_name(task, number) for number, task in enumerate(tasks)]
    example = _TEXT if text else _SIMULATORS
    for name in sorted({name for name in names if names.count(name) > 1 or name in INTERVAL_PARTS}):
        taken = f"is what a part of every metric is called ({', '.join(INTERVAL_PARTS)})"
        why = taken if name in INTERVAL_PARTS else "is the name of several tasks"
        context.error("env.tasks", f"env.tasks: {name} {why}.", f"Give each a name of its own. {example}")
    if any(task.weight < 0 for task in tasks) or not any(task.weight > 0 for task in tasks):
        context.error("env.tasks", "env.tasks: weights must be at least 0, and one of them above.", example)
    if text:
        context.run(_check_text, dict(zip(names, tasks, strict=False)))
    else:
        context.run(_check_simulator)


def check_pool(context: Context) -> None:
    """Something must be left between the tasks that are solved and those that are not."""
    pool = context.config.data.pool
    if pool.solved is not None and pool.unsolved is not None and pool.unsolved >= pool.solved:
        message = f"data.pool: every task would rest: unsolved {pool.unsolved:g} is not below solved {pool.solved:g}."
        context.error("data.pool.unsolved", message, "For example: solved: 1, unsolved: 0.")
    if not pool.adaptive:
        why = "is not read while no task rests (data.pool.solved and data.pool.unsolved are null)."
        context.unread("data.pool.rest", why, "Set data.pool.solved: 1.")


def check_curriculum(context: Context) -> None:
    """Check that a curriculum states how it goes on, in one of two ways."""
    config = context.config
    curriculum = config.data.curriculum
    if curriculum.by is None:
        why = "is not read without data.curriculum.by."
        for name in ("start", "steps", "accuracy", "warm_start"):
            context.unread(f"data.curriculum.{name}", why, "Set data.curriculum.by: question_length.")
        return
    timed, gated = curriculum.steps > 0, curriculum.accuracy is not None
    if timed == gated and (timed or config.run.max_steps):
        message = (
            "data.curriculum: steps and accuracy both set when harder tasks come."
            if timed
            else "data.curriculum: nothing sets when harder tasks come."
        )
        fix = "Keep one of them." if timed else "Set data.curriculum.steps: 20, or accuracy: 0.6."
        context.error("data.curriculum.steps", message, fix)
    if curriculum.warm_start and (not config.sft.steps or config.sft.data is not None):
        why = "is about demonstrations of the environment, and there are none to order."
        context.unread("data.curriculum.warm_start", why, "Set sft.steps, without sft.data.")


def _check_simulator(context: Context) -> None:
    tasks = context.config.env.tasks
    _unread(context, ("id", "max_turns", "evaluation_kwargs", "evaluation_size"), "language models")
    if len({task.instruction is None for task in tasks}) > 1:
        message = "env.tasks: some tasks have an instruction and others have none, so their observations differ."
        context.error("env.tasks", message, "Write an instruction for each of them, or for none.")
    if "other_goal" in context.config.evaluation.words and any(task.instruction is not None for task in tasks):
        message = "evaluation.words: other_goal has the environment name another goal, and env.tasks fixes the words."
        context.error("evaluation.words", message, "Take one of the two out.")


def _check_text(context: Context, tasks: Mapping[str, TaskConfig]) -> None:
    _unread(context, ("instruction",), "simulators")
    env = context.config.env
    for name, task in tasks.items():
        if not task.id and not env.id:
            context.error("env.tasks", f"env.tasks: {name or 'an entry'} has no id, and there is no env.id.", _TEXT)
        if is_agent(task.id or env.id):
            message = f"env.tasks: {name} is an agent, which calls the policy itself and can't be mixed with others."
            context.error("env.tasks", message, "Train on it alone: env.id.")
        for key, value, least in (("max_turns", task.max_turns, 1), ("evaluation_size", task.evaluation_size, 0)):
            if value is not None and value < least:
                message = f"env.tasks: {key} of {name} must be at least {least}, not {value}."
                context.error("env.tasks", message, f"Write {least} or more, or leave it out.")


def _unread(context: Context, keys: tuple[str, ...], readers: str) -> None:
    """Report keys of an entry that only the other kind of run reads."""
    default: Any = TaskConfig()
    for key in keys:
        if any(getattr(task, key) != getattr(default, key) for task in context.config.env.tasks):
            message = f"env.tasks: {key} is read by {readers} only, and this policy is {context.config.policy.name}."
            context.error("env.tasks", message, "Take it out.")
