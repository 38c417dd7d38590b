"""From options given as keywords to the typed section of the configuration, which everything here reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from rlinf.algorithms.catalog import refuse_unknown
from rlinf.schema.algorithm import AlgorithmConfig

_KEYS = frozenset(item.name for item in fields(AlgorithmConfig))


def settings(options: Mapping[str, Any], known: Iterable[str], *, chosen: str) -> AlgorithmConfig:
    """Build the configuration with these ``options``, the others at their defaults.

    An option outside ``known`` is a TypeError that lists those and names ``chosen``. What is no key of the schema
    is an option of the chosen function's own.

    >>> settings({"tis_cap": 3.0}, ["tis_cap"], chosen="loss_type: tis").tis_cap
    3.0
    """
    refuse_unknown(chosen, options, known)
    keys = {name: value for name, value in options.items() if name in _KEYS}
    return AlgorithmConfig(**keys, options={name: options[name] for name in options.keys() - _KEYS})
