"""The run's name and directory, its evaluations, and the checkpoints that follow them."""

from __future__ import annotations

import json
import os

from rlinf.config.checks.metric_names import metric_mistake
from rlinf.config.context import Context
from rlinf.config.defaults import default_of
from rlinf.config.derived import run_directory
from rlinf.config.placeholders import PlaceholderError

_OF_AN_EVALUATION = (
    "every",
    "background",
    "samples",
    "temperature",
    "env_kwargs",
    "video_every",
    "video_episodes",
    "words",
)
"""Keys of `evaluation` that request one."""

_LONGEST_PART, _LONGEST_PATH = 255, 3800
"""Bytes of a folder's name on Linux, and of a path that leaves room for the files in it."""


def check_run(context: Context) -> None:
    """Check that a name is one path component, and that a directory has placeholders that can be filled in alone."""
    name = context.config.run.name
    if name in ("", ".", "..") or not name.isprintable() or any(separator in name for separator in "/\\"):
        message = f"run.name {name!r} cannot be the name of a folder."
        fix = "Take separators and control characters out; run.dir sets the path of the run directory."
        context.error("run.name", message, fix)
        return
    if not context.config.logging.trace_every:
        why = "is not read without logging.trace_every: no timeline is recorded."
        context.unread("logging.otlp_endpoint", why, "Set logging.trace_every: 10.")
    if context.config.run.init_from is None:
        context.unread("run.init_optimizer", "is not read without run.init_from.", "Name a run, or take it out.")
    if not context.config.run.dir.strip(" /"):
        message = f"run.dir: {context.config.run.dir!r} is no folder of a run."
        context.error("run.dir", message, "For example: runs/{name}_{seed}.")
        return
    for key, value in (("run.name", name), ("run.dir", context.config.run.dir)):
        if "$" in value:
            message = f"{key}: {value} names a variable of the shell, which is not filled in here."
            context.error(key, message, "Write ${oc.env:NAME} for an environment variable, ~ for the home folder.")
    try:
        too_long = _too_long(run_directory(context.config))
        if too_long:
            key = "run.name" if len(os.fsencode(name)) > _LONGEST_PART else "run.dir"
            context.error(key, f"{key}: {too_long}.", "Shorten it.")
    except PlaceholderError as error:
        context.error("run.dir", f"run.dir: {error}.", "For example: runs/{name}_{seed}.")


def _too_long(directory: str) -> str:
    """Explain why no file system takes a run directory; empty if nothing is against it."""
    longest = max((part for part in directory.split("/")), key=lambda part: len(os.fsencode(part)))
    if len(os.fsencode(longest)) > _LONGEST_PART:
        return (
            f"a folder named {longest[:20]}... has {len(os.fsencode(longest))} bytes, and {_LONGEST_PART} are possible"
        )
    whole = len(os.fsencode(os.path.abspath(directory)))
    return f"the path has {whole:,} bytes, and {_LONGEST_PATH:,} are possible" if whole > _LONGEST_PATH else ""


def check_evaluation(context: Context) -> None:
    """Several samples must be able to differ, and the best checkpoint needs a metric that is measured."""
    evaluation, checkpoint = context.config.evaluation, context.config.checkpoint
    if evaluation.samples > 1 and evaluation.temperature == 0:
        message = f"evaluation.samples {evaluation.samples} at temperature 0 would all be the same response."
        fix = "Set evaluation.temperature: 0.6, for example, or evaluation.samples: 1."
        context.error("evaluation.samples", message, fix)
    if evaluation.size == 0:
        for key in context.switched_off("evaluation.size", _OF_AN_EVALUATION):
            off = json.dumps(default_of(context.config, key))
            fix = f"Take it out ({key}={off} on the command line), or set evaluation.size: 256."
            context.unread(key, "is not read with evaluation.size: 0.", fix)
    elif evaluation.every and evaluation.video_every % evaluation.every:
        every, video = evaluation.every, evaluation.video_every
        message = (
            f"evaluation.video_every {video}: no evaluation falls on every {video}th step (evaluation.every {every})."
        )
        fix = f"Set it to a multiple, for example {max(1, round(video / every)) * every}."
        context.error("evaluation.video_every", message, fix)
    if evaluation.background and evaluation.size:
        context.run(_check_background)
    best = checkpoint.best_metric
    if best is None:
        return
    key = "checkpoint.best_metric"
    if not best.startswith("eval/"):
        message = f"{key}: {best} is not an evaluation metric."
        context.error(key, message, "Write eval/accuracy (verified tasks) or eval/return (simulators).")
        return
    mistake = metric_mistake(context.config, best, on_files=False)
    if mistake is not None:
        context.error(key, f"{key}: {mistake.message}", mistake.fix)


def _check_background(context: Context) -> None:
    """Check that samplers are free while the learner trains, and that the learner takes no part in evaluations."""
    config, key = context.config, "evaluation.background"
    if not config.rollout.staleness:
        message = f"{key}: with rollout.staleness: 0 samplers and learner wait for each other, and nothing is saved."
        context.error(key, message, "Set rollout.staleness: 1, or take it out.")
    if not config.evaluation.every:
        message = f"{key}: with evaluation.every: 0 no evaluation falls between two steps of training."
        context.error(key, message, "Set evaluation.every: 10, for example, or take it out.")
    held_out = "sft.eval_data" if config.sft.eval_data is not None else "sft.eval_fraction"
    if config.sft.eval_data is not None or config.sft.eval_fraction:
        message = f"{key}: the learner itself measures {held_out}, and it trains meanwhile."
        context.error(key, message, "Take one of the two out.", at=(held_out,))
