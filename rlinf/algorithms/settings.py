"""From options given as keywords to the typed section of the configuration, which everything here reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from rlinf.algorithms.catalog import readers
from rlinf.schema.algorithm import AlgorithmConfig

_KEYS = frozenset(item.name for item in fields(AlgorithmConfig))


def settings(options: Mapping[str, Any], known: Iterable[str], *, chosen: str) -> AlgorithmConfig:
    """Build the configuration with these ``options``, the others at their defaults.

    An option outside ``known`` is a TypeError that lists those, names ``chosen`` and those that read it. What is no key
    of the schema is an option of the chosen function's own.

    >>> settings({"tis_cap": 3.0}, ["tis_cap"], chosen="loss_type: tis").tis_cap
    3.0
    >>> settings({"sapo_tau_positive": 1.0}, ("gamma",), chosen="loss_type: gmpo")
    Traceback (most recent call last):
    TypeError: loss_type: gmpo does not read sapo_tau_positive (read by loss_type: sapo); it reads: gamma
    """
    known = sorted(set(known))
    strange = sorted(set(options) - set(known))
    if strange:
        named = [f"{name} (read by {', '.join(readers(name))})" if readers(name) else name for name in strange]
        raise TypeError(f"{chosen} does not read {', '.join(named)}; it reads: {', '.join(known)}")
    keys = {name: value for name, value in options.items() if name in _KEYS}
    return AlgorithmConfig(**keys, options={name: options[name] for name in options.keys() - _KEYS})
