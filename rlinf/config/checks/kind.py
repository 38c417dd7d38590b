"""Keys that only some kinds of policy read: ``policy.name`` decides which kind a run is."""

from __future__ import annotations

import shlex
from pathlib import Path

from rlinf.base.machine import installed
from rlinf.base.user_code import nearest_module
from rlinf.config.context import Context
from rlinf.config.derived import is_text, trains_on_files_alone
from rlinf.config.extras import OWN_ENVIRONMENT, simulator_extra
from rlinf.config.names import facts_of, leaves
from rlinf.schema.derived import AGENT, VERIFIERS
from rlinf.schema.key import READERS


def check_kind(context: Context) -> None:
    """Report keys of other kinds, and a run without an environment."""
    tasks = context.config.env.tasks
    named = context.config.env.id or (tasks and is_text(context.config))
    if not named and not trains_on_files_alone(context.config):
        fix = "Add `env:` with `id: rlinf_envs:rlinf/ReasoningGym-v0`, or any other gymnasium id."
        if context.config.sft.data is not None:
            fix += " Supervised training alone needs none: rlinf sft, or run.max_steps: 0."
        context.error("env.id", "env.id is missing: there is nothing to train on.", fix)
    context.run(_check_module)
    for readers in READERS:
        if context.is_for(readers):
            continue
        fix = f"Take it out, or choose policy.name: {readers.policies[0]}."
        why = f"is read only {readers.words}, and this policy is {context.config.policy.name}."
        for key in leaves():
            if facts_of(key).read_by is readers:
                context.unread(key, why, fix)


def _check_module(context: Context) -> None:
    """``module:Id`` needs its module."""
    env = context.config.env
    for name, simulator in OWN_ENVIRONMENT.items():
        if env.id.startswith(simulator.begins) and env.isolation == "none" and not installed(simulator.module):
            message = f"env.id: {name} is not installed here; its pins clash with ours."
            context.error("env.id", message, f"Give it an environment of its own: {simulator.fix}.")
    module, colon, _ = env.id.removeprefix(AGENT).partition(":")
    top = module.partition(".")[0]
    foreign = env.isolation == "process" or env.id.startswith(VERIFIERS)
    if not colon or foreign or not top.isidentifier():
        return
    if not installed(top) and not Path(f"{top}.py").exists() and not Path(top).is_dir():
        message = f"env.id: there is no module {top} here{nearest_module(top)}."
        extra, file = simulator_extra(env.id), Path(context.origins.get("env.id", context.source).file)
        # A run's own copy lies below the folder that the run was started in.
        near = (folder / name for folder in file.parents for name in (f"{top}.py", f"{top}/__init__.py"))
        module_file = next((path for path in near if path.exists()), None)
        fix = "Install what brings it, or write rlinf_envs:rlinf/ReasoningGym-v0 for an environment of ours."
        if extra is not None:
            fix = f"Install it: {extra.fix}."
        elif module_file is not None:
            folder = shlex.quote(str(module_file.parent if module_file.stem == top else module_file.parent.parent))
            fix = f"{module_file} is there: start the run in {folder}, or with PYTHONPATH={folder}."
        context.error("env.id", message, fix)
