"""Default values: the schema's, or others for some kinds of run.

The schema holds one default a key, and others for kinds of run (`for_runs`). They are applied once, when a
configuration is loaded, so that the typed configuration and `config.yaml` of a run hold the value. A
condition never holds for a run that does not read the key. So configurations that were stored by an earlier
version stay equal to the meaning of their file today.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rlinf.algorithms.catalog import OFF_POLICY
from rlinf.algorithms.catalog_corrections import CORRECTIONS
from rlinf.config.derived import (
    compares_groups,
    has_files_alone,
    has_warm_start,
    holds_fragments,
    is_off_policy,
    is_pretrained,
    is_text,
)
from rlinf.config.names import facts_of, leaves
from rlinf.schema import Sections

SomeConfig = TypeVar("SomeConfig", bound=Sections)


@dataclass(frozen=True)
class _ConditionalDefault:
    """The default of ``key`` for the runs that ``holds`` selects and ``runs`` describes in words."""

    key: str
    value: object
    runs: str
    holds: Callable[[Sections], bool]


def _has(key: str, value: object, config: Sections) -> bool:
    return value_of(config, key) == value


_RUNS: Mapping[str, Callable[[Sections], bool]] = {
    "simulators, unless the language model is pretrained": lambda config: (
        not (is_text(config) or is_pretrained(config))
    ),
    "simulators with adv_type: gae or an off-policy loss_type": holds_fragments,
    "supervised training on sft.data without an environment": has_files_alone,
    "pretrained language models": lambda config: has_warm_start(config) and is_pretrained(config),
    "off-policy loss_type with policy.use_sde: true": lambda config: is_off_policy(config) and config.policy.use_sde,
    "estimators that do not compare groups": lambda config: not compares_groups(config),
    **{f"loss_type: {name}": functools.partial(_has, "algorithm.loss_type", name) for name in OFF_POLICY},
}
"""Decides whether a run is of a kind for which the schema has another default."""


CONDITIONAL = (
    *(
        _ConditionalDefault(key, value, runs, _RUNS[runs])
        for key in leaves()
        for runs, value in facts_of(key).for_runs.items()
    ),
    *(
        _ConditionalDefault(
            f"algorithm.rollout_correction.{name}",
            value,
            f"preset: {preset}",
            functools.partial(_has, "algorithm.rollout_correction.preset", preset),
        )
        for preset, correction in CORRECTIONS.items()
        for name, value in correction.values.items()
    ),
)
"""At most one condition of a key may hold for a run."""


def value_of(config: Sections, key: str) -> object:
    """Return the value at a dotted key of the schema."""
    value: object = config
    for name in key.split("."):
        value = getattr(value, name)
    return value


def with_value(config: SomeConfig, key: str, value: object) -> SomeConfig:
    """Build the same configuration with another value at one dotted key."""
    changed: Any = value
    sections = key.split(".")
    for depth in reversed(range(len(sections))):
        around: Any = value_of(config, ".".join(sections[:depth])) if depth else config
        changed = replace(around, **{sections[depth]: changed})
    assert isinstance(changed, type(config))
    return changed


@functools.cache
def schema_default(key: str) -> object:
    """Return the schema's default of a key."""
    return value_of(Sections(), key)


def conditional(config: Sections, key: str) -> _ConditionalDefault | None:
    """Return the default that this kind of run has instead of the schema's, if any."""
    return next((default for default in CONDITIONAL if default.key == key and default.holds(config)), None)


def default_of(config: Sections, key: str) -> object:
    """Return the default of ``key`` in a run like this."""
    instead = conditional(config, key)
    return schema_default(key) if instead is None else instead.value


def fill_in(config: SomeConfig, written: Container[str]) -> SomeConfig:
    """Fill in the defaults of the configuration's kind of run at every key that is not among the ``written`` ones."""
    for default in CONDITIONAL:
        if default.key not in written and default.holds(config):
            config = with_value(config, default.key, default.value)
    return config
