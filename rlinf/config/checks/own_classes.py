"""Policies, encoders and distributions by name: ours, or a class of the user's own with options that it takes."""

from __future__ import annotations

import inspect
import typing

from rlinf.config.context import Context
from rlinf.config.names import nearest
from rlinf.config.plugins import OWN_DISTRIBUTIONS, OWN_ENCODERS, OWN_POLICIES
from rlinf.config.problems import Origin
from rlinf.config.tree import locate
from rlinf.config.values import Builder, Mismatch

_GIVEN_BY_THE_RUN = ("num_action_chunks",)
OURS = {
    "policy.name": OWN_POLICIES,
    "policy.encoder": OWN_ENCODERS,
    "policy.distribution": OWN_DISTRIBUTIONS,
}
"""Keys that take a name of ours or `module:Class`."""
_OPTIONS = {
    "policy.name": "policy.options",
    "policy.encoder": "policy.encoder_options",
    "policy.distribution": "policy.distribution_options",
}


def check_own_classes(context: Context) -> None:
    """A name is one of ours or a class that can be imported, and its options are those of its signature."""
    policy = context.config.policy
    given = {
        "policy.name": (policy.name, policy.options),
        "policy.encoder": (policy.encoder, policy.encoder_options),
        "policy.distribution": (policy.distribution, policy.distribution_options),
    }
    for key, (name, options) in given.items():
        if ":" in name:
            _check_class(context, key, name, options)
            continue
        why = f"is not read by {key}: {name}, which is none of your own."
        context.unread(_OPTIONS[key], why, "Take it out.", reads=(key,))
        if name not in OURS[key]:
            close = nearest(name, OURS[key])
            message = f"{key} must be one of {', '.join(OURS[key])}, or module:Class of your own, not {name}."
            context.error(key, message, f"Did you mean {close[0]}?" if close else f"For example: {OURS[key][1]}.")
            context.broken.add(key)


def _check_class(context: Context, key: str, name: str, options: dict[str, object]) -> None:
    from rlinf.models.own import OwnClassError, own_class, own_options

    try:
        kind = own_class(key, name)
    except OwnClassError as error:
        context.error(key, f"{str(error).partition('. ')[0]}.", "The module must be on PYTHONPATH, or lie here.")
        context.broken.add(key)
        return
    known, section = own_options(kind), _OPTIONS[key]
    asked = {option: parameter for option, parameter in known.items() if option not in _GIVEN_BY_THE_RUN}
    if key == "policy.name" and context.config.env.num_action_chunks > 1 and "num_action_chunks" not in known:
        message = f"env.num_action_chunks: {name} takes no option num_action_chunks: it decides on single actions."
        context.error("env.num_action_chunks", message, "Set it to 1.", reads=(key,))
    for option, value in options.items():
        if option not in asked:
            close = nearest(option, asked)
            fix = f"Did you mean {close[0]}?" if close else f"It takes {', '.join(asked) or 'no options'}."
            context.error(section, f"{section}.{option} is no option of {name}.", fix, reads=(key,))
            continue
        expected = _misfit(kind, option, value)
        if expected is not None:
            message = f"{section}.{option} must be {expected.expected}, not {value!r}."
            context.error(section, message, expected.fix, reads=(key,))
    missing = [option for option, parameter in asked.items() if parameter.default is inspect.Parameter.empty]
    for option in sorted(set(missing) - set(options)):
        message = f"{section} lacks {option}, which {name} has no default for."
        context.error(section, message, f"Write {section}: {{{option}: ...}}.", reads=(key,))


def _misfit(kind: type, option: str, value: object) -> Mismatch | None:
    """What the class's annotation wants, where ``value`` is something else."""
    try:
        hint = typing.get_type_hints(typing.cast(typing.Any, kind).__init__).get(option, object)
        Builder().value(hint, locate(value, Origin("")), option)
    except Mismatch as mismatch:
        return mismatch
    except (KeyError, NameError, TypeError):  # an annotation that no YAML value has: the class judges
        return None
    return None
