"""Checks the names that a key takes: ours, or a class or function of the user's own, with options that it takes."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rlinf.algorithms.entries import imported
from rlinf.config.context import Context
from rlinf.config.facts import is_text
from rlinf.config.names import nearest
from rlinf.config.plugins import OWN_DISTRIBUTIONS, OWN_ENCODERS, OWN_POLICIES, OWN_SAMPLERS, plugins
from rlinf.config.problems import Origin
from rlinf.config.tree import locate
from rlinf.config.values import Builder, Mismatch

_GIVEN_BY_THE_RUN = ("num_action_chunks",)
_HANDED = 2
"""Positional arguments that the run itself gives to a sampler or a tracker."""
OURS: Mapping[str, Sequence[str]] = {
    "policy.name": OWN_POLICIES,
    "policy.encoder": OWN_ENCODERS,
    "policy.distribution": OWN_DISTRIBUTIONS,
}
"""Keys of a simulator's policy that take a name of ours or `module:Class`."""
_WHERE = "The module must be on PYTHONPATH, or lie where the run is started."


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
            _check_class(context, key, name, section, options)
            continue
        why = f"is not read by {key}: {name}, which is none of your own."
        context.unread(section, why, "Take it out.", reads=(key,))
        if name not in OURS[key]:
            close = nearest(name, OURS[key])
            message = f"{key} must be one of {', '.join(OURS[key])}, or module:Class of your own, not {name}."
            context.error(key, message, f"Did you mean {close[0]}?" if close else f"For example: {OURS[key][1]}.")
            context.broken.add(key)


def check_own_functions(context: Context) -> None:
    """Samplers and trackers: names exist, and options fit the parameters of what they name."""
    rollout, logging = context.config.rollout, context.config.logging
    if is_text(context.config):
        if ":" in rollout.sampler:
            section = "rollout.sampler_options"
            _check_function(context, "rollout.sampler", rollout.sampler, section, rollout.sampler_options)
        elif rollout.sampler not in OWN_SAMPLERS:
            _unknown(context, "rollout.sampler", rollout.sampler, (*OWN_SAMPLERS, *plugins("rlinf.samplers")))
        else:
            why = f"is not read by rollout.sampler: {rollout.sampler}."
            context.unread("rollout.sampler_options", why, "Take it out.", reads=("rollout.sampler",))
    for name, options in logging.sinks.items():
        if ":" not in name:
            _unknown(context, "logging.sinks", name, tuple(plugins("rlinf.sinks")))
        elif not isinstance(options, Mapping) and options is not None:
            message = f"logging.sinks: {name} needs a mapping of its options, not {options!r}."
            context.error("logging.sinks", message, "Write {} where there are none.")
        else:
            _check_function(context, "logging.sinks", name, "logging.sinks", options or {})


def _unknown(context: Context, key: str, name: str, known: Collection[str]) -> None:
    close = nearest(name, known)
    listed = f"there are {', '.join(known)}, and " if known else "there is "
    message = f"{key}: {name} does not exist; {listed}module:name of your own."
    context.error(key, message, f"Did you mean {close[0]}?" if close else _WHERE)
    context.broken.add(key)


def _check_class(context: Context, key: str, name: str, section: str, options: Mapping[str, object]) -> None:
    from rlinf.models.own import OwnClassError, own_class, own_options

    try:
        kind: Any = own_class(key, name)
    except OwnClassError as error:
        context.error(key, f"{str(error).partition('. ')[0]}.", _WHERE)
        context.broken.add(key)
        return
    known = own_options(kind)
    if key == "policy.name" and context.config.env.num_action_chunks > 1 and "num_action_chunks" not in known:
        message = f"env.num_action_chunks: {name} takes no option num_action_chunks: it decides on single actions."
        context.error("env.num_action_chunks", message, "Set it to 1.", reads=(key,))
    asked = [parameter for parameter in known.values() if parameter.name not in _GIVEN_BY_THE_RUN]
    _check_options(context, key, name, section, options, asked, kind.__init__)


def _check_function(context: Context, key: str, name: str, section: str, options: Mapping[str, object]) -> None:
    try:
        made = imported(name)
        signature = inspect.signature(made)
        signature.bind_partial(*[None] * _HANDED)
    except (ValueError, TypeError) as error:
        context.error(key, f"{key}: {error}.", _WHERE)
        context.broken.add(key)
        return
    asked = list(signature.parameters.values())[_HANDED:]
    _check_options(context, key, name, section, options, asked, made.__init__ if inspect.isclass(made) else made)


def _check_options(
    context: Context,
    key: str,
    name: str,
    section: str,
    options: Mapping[str, object],
    parameters: Sequence[inspect.Parameter],
    annotated: Any,
) -> None:
    """``options``, written in ``section``, are ``parameters`` of ``name``, of the types that ``annotated`` says."""
    named = {p.name: p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    for option, value in options.items():
        if option not in named:
            close = nearest(option, named)
            fix = f"Did you mean {close[0]}?" if close else f"It takes {', '.join(named) or 'no options'}."
            if not takes_any:
                context.error(section, f"{section}.{option} is no option of {name}.", fix, reads=(key,))
            continue
        expected = _misfit(annotated, option, value)
        if expected is not None:
            message = f"{section}.{option} must be {expected.expected}, not {value!r}."
            context.error(section, message, expected.fix, reads=(key,))
    missing = [option for option, parameter in named.items() if parameter.default is inspect.Parameter.empty]
    for option in sorted(set(missing) - set(options)):
        message = f"{section} lacks {option}, which {name} has no default for."
        context.error(section, message, f"Write {section}: {{{option}: ...}}.", reads=(key,))


def _misfit(annotated: Any, option: str, value: object) -> Mismatch | None:
    """The type that the annotation wants, where ``value`` is something else."""
    try:
        Builder().value(typing.get_type_hints(annotated).get(option, object), locate(value, Origin("")), option)
    except Mismatch as mismatch:
        return mismatch
    except (KeyError, NameError, TypeError):  # an annotation that no YAML value has: who wrote it judges
        return None
    return None
