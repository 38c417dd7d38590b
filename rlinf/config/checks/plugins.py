"""Samplers and trackers of somebody's own: they can be imported, and take the options that are written for them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from rlinf.algorithms.entries import imported
from rlinf.config.context import Context
from rlinf.config.facts import is_text
from rlinf.config.names import nearest
from rlinf.config.plugins import OWN_SAMPLERS, plugins

_WHERE = "The module must be on PYTHONPATH, or lie where the run is started."


def check_plugins(context: Context) -> None:
    """Names exist, and options fit the parameters of what they name."""
    rollout, logging = context.config.rollout, context.config.logging
    if is_text(context.config):
        own = ":" in rollout.sampler
        if own:
            _check_options(context, "rollout.sampler", rollout.sampler, rollout.sampler_options, handed=2)
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
            _check_options(context, "logging.sinks", name, options or {}, handed=2)


def _unknown(context: Context, key: str, name: str, known: tuple[str, ...]) -> None:
    close = nearest(name, known)
    listed = f"there are {', '.join(known)}, and " if known else "there is "
    message = f"{key}: {name} does not exist; {listed}module:name of your own."
    context.error(key, message, f"Did you mean {close[0]}?" if close else _WHERE)
    context.broken.add(key)


def _check_options(context: Context, key: str, name: str, options: Mapping[str, object], *, handed: int) -> None:
    """``handed``: how many positional arguments the run itself gives."""
    try:
        signature = inspect.signature(imported(name))
    except (ValueError, TypeError) as error:
        context.error(key, f"{key}: {error}.", _WHERE)
        context.broken.add(key)
        return
    try:
        signature.bind(*[None] * handed, **options)
    except TypeError as error:
        parameters = list(signature.parameters.values())[handed:]
        known = ", ".join(str(parameter) for parameter in parameters) or "none"
        context.error(key, f"{key}: {name}: {error}.", f"Its options are: {known}.")
        return
    for option, value in options.items():
        wanted = signature.parameters[option].annotation if option in signature.parameters else None
        kind = _SCALARS.get(getattr(wanted, "__name__", str(wanted)))
        if kind is not None and not (isinstance(value, kind) and (isinstance(value, bool) == (kind is bool))):
            message = f"{key}: {name}: {option} must be {getattr(wanted, '__name__', wanted)}, not {value!r}."
            context.error(key, message, "Correct the value.")


_SCALARS: Mapping[str, type | tuple[type, ...]] = {"int": int, "float": (int, float), "str": str, "bool": bool}
"""Annotations, as types or as text, whose values are checked."""
