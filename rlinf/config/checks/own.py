"""Checks the names that a key takes: ours, or a class or function of the user's own, with options that it takes."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rlinf.base.user_code import MODULE_PATH_ADVICE, Signature, imported, own_parameters
from rlinf.config.context import Context
from rlinf.config.derived import is_text
from rlinf.config.names import nearest
from rlinf.config.plugins import OWN_DISTRIBUTIONS, OWN_ENCODERS, OWN_POLICIES, OWN_SAMPLERS, plugins
from rlinf.config.problems import Origin
from rlinf.config.tree import locate
from rlinf.config.values import Builder, Mismatch

_GIVEN_BY_THE_RUN = ("num_action_chunks",)
_CALLS: Mapping[str, Signature] = {
    "rollout.sampler": Signature(("the rollout section", "a SamplerSpec"), makes=True),
    "logging.sinks": Signature(("the run directory", "the configuration"), makes=True),
    "policy.name": Signature(("the observation space", "the action space"), makes=True),
    "policy.encoder": Signature(("the observation space",), makes=True),
    "policy.distribution": Signature(("the number of features", "the action space"), makes=True),
}
"""What the run itself gives to a function or class of the user's own; options are given by name."""
OURS: Mapping[str, Sequence[str]] = {
    "policy.name": OWN_POLICIES,
    "policy.encoder": OWN_ENCODERS,
    "policy.distribution": OWN_DISTRIBUTIONS,
}
"""Keys of a simulator's policy that take a name of ours or `module:Class`."""


def check_own_policy(context: Context) -> None:
    """Policy, encoder and distribution: a name is one of ours or a class that can be imported, with its options."""
    policy = context.config.policy
    given = {
        "policy.name": (policy.name, "policy.options", policy.options),
        "policy.encoder": (policy.encoder, "policy.encoder_options", policy.encoder_options),
        "policy.distribution": (policy.distribution, "policy.distribution_options", policy.distribution_options),
    }
    for key, (name, section, options) in given.items():
        if ":" in name:
            context.run(_check_class, key, name, section, options)
            continue
        why = f"is not read by {key}: {name}, which is none of your own."
        context.unread(section, why, "Take it out.")
        if name not in OURS[key]:
            close = nearest(name, OURS[key])
            message = f"{key} must be one of {', '.join(OURS[key])}, or module:Class of your own, not {name}."
            _refuse(context, key, message, f"Did you mean {close[0]}?" if close else f"For example: {OURS[key][1]}.")


def check_own_functions(context: Context) -> None:
    """Samplers and trackers: names exist, and options fit the parameters of what they name."""
    rollout, logging = context.config.rollout, context.config.logging
    if is_text(context.config):
        if ":" in rollout.sampler:
            section = "rollout.sampler_options"
            context.run(_check_function, "rollout.sampler", rollout.sampler, section, rollout.sampler_options)
        elif rollout.sampler not in OWN_SAMPLERS:
            _unknown(context, "rollout.sampler", rollout.sampler, (*OWN_SAMPLERS, *plugins("rlinf.samplers")))
        else:
            why = f"is not read by rollout.sampler: {rollout.sampler}."
            context.unread("rollout.sampler_options", why, "Take it out.")
    for name, options in logging.sinks.items():
        if ":" not in name:
            _unknown(context, "logging.sinks", name, tuple(plugins("rlinf.sinks")))
        elif not isinstance(options, Mapping) and options is not None:
            message = f"logging.sinks: {name} needs a mapping of its options, not {options!r}."
            context.error("logging.sinks", message, "Write {} where there are none.")
        else:
            context.run(_check_function, "logging.sinks", name, "logging.sinks", options or {})


def _unknown(context: Context, key: str, name: str, known: Collection[str]) -> None:
    close = nearest(name, known)
    listed = f"there are {', '.join(known)}, and " if known else "there is "
    message = f"{key}: {name} does not exist; {listed}module:name of your own."
    _refuse(context, key, message, f"Did you mean {close[0]}?" if close else MODULE_PATH_ADVICE)


def _check_class(context: Context, key: str, name: str, section: str, options: Mapping[str, object]) -> None:
    from rlinf.models.own import OwnClassError, own_class, own_options

    try:
        kind: Any = own_class(key, name)
    except OwnClassError as error:
        _refuse(context, key, f"{str(error).removesuffix(MODULE_PATH_ADVICE).strip('. ')}.", MODULE_PATH_ADVICE)
        return
    known = own_options(kind)
    misfit = _CALLS[key].misfit(kind, known)
    if misfit:
        _refuse(context, key, f"{key}: {name} {misfit}.", f"Options stand behind `*`, and are set in {section}.")
        return
    lacks = _lacking_methods(kind) if key == "policy.name" else []
    if lacks:
        message = f"{key}: {name} lacks {', '.join(lacks)}, which every policy of a simulator has."
        _refuse(context, key, message, "rlinf.interfaces.ActingPolicy documents each.")
    if key == "policy.name" and context.config.env.num_action_chunks > 1 and "num_action_chunks" not in known:
        message = f"env.num_action_chunks: {name} takes no option num_action_chunks: it decides on single actions."
        context.error("env.num_action_chunks", message, "Set it to 1.")
    configurable = [parameter for parameter in known.values() if parameter.name not in _GIVEN_BY_THE_RUN]
    context.run(_check_options, key, name, section, options, configurable, kind.__init__)


def _refuse(context: Context, key: str, message: str, fix: str) -> None:
    context.error(key, message, fix)
    context.broken.add(key)


def _lacking_methods(kind: type) -> list[str]:
    """List the methods of a simulator's policy that a class does not have."""
    from rlinf.interfaces import ActingPolicy

    methods = {
        name
        for protocol in ActingPolicy.__mro__
        for name, method in vars(protocol).items()
        if inspect.isroutine(method)
    }
    return sorted(name for name in methods if not name.startswith("_") and not hasattr(kind, name))


def _check_function(context: Context, key: str, name: str, section: str, options: Mapping[str, object]) -> None:
    try:
        made = imported(name)
    except ValueError as error:
        _refuse(context, key, f"{key}: {error}.", MODULE_PATH_ADVICE)
        return
    handed = _CALLS[key]
    parameters = own_parameters(made, behind=len(handed.positional))
    misfit = handed.misfit(made, [parameter.name for parameter in parameters])
    if misfit:
        _refuse(context, key, f"{key}: {name} {misfit}.", "Options follow these, and are given by name.")
        return
    context.run(
        _check_options, key, name, section, options, parameters, made.__init__ if inspect.isclass(made) else made
    )


def _check_options(
    context: Context,
    key: str,
    name: str,
    section: str,
    options: Mapping[str, object],
    parameters: Sequence[inspect.Parameter],
    annotated: Any,
) -> None:
    """Check that ``options``, written in ``section``, are ``parameters`` of ``name``, of the types in ``annotated``."""
    named = {p.name: p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    for option, value in options.items():
        if option not in named:
            close = nearest(option, named)
            fix = f"Did you mean {close[0]}?" if close else f"It takes {', '.join(named) or 'no options'}."
            if not takes_any:
                context.error(section, f"{section}.{option} is no option of {name}.", fix)
            continue
        expected = _misfit(annotated, option, value)
        if expected is not None:
            message = f"{section}.{option} must be {expected.expected}, not {value!r}."
            context.error(section, message, expected.fix)
    missing = [option for option, parameter in named.items() if parameter.default is inspect.Parameter.empty]
    for option in sorted(set(missing) - set(options)):
        message = f"{section} lacks {option}, which {name} has no default for."
        context.error(section, message, f"Write {section}: {{{option}: ...}}.")


def _misfit(annotated: Any, option: str, value: object) -> Mismatch | None:
    """Return the type that the annotation requires, if ``value`` is something else."""
    try:
        Builder().value(typing.get_type_hints(annotated).get(option, object), locate(value, Origin("")), option)
    except Mismatch as mismatch:
        return mismatch
    except (KeyError, NameError, TypeError):  # an annotation that no YAML value has: who wrote it judges
        return None
    return None
