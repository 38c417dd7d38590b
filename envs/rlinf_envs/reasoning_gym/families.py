"""Task families of reasoning-gym: made by name, with parameters or curriculum levels, all checked before use.

With :mod:`.quotients` and :mod:`.calculations`, families of our own on :mod:`.number_family`, the only module that
imports ``reasoning_gym``.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import random
import warnings
from collections.abc import Mapping
from typing import Any, Protocol

from rlinf.base.packages import absent
from rlinf_envs.errors import SettingError
from rlinf_envs.suggest import reject_unknown, unknown
from rlinf_envs.typed import misfits

HASH_ORDERED = frozenset(
    {"isomorphic_strings", "knight_swap", "polynomial_multiplication", "ransom_note", "word_ladder"}
)
"""Families that iterate over sets of text while they generate (measured on all 105 of reasoning-gym 0.1.25)."""


class Family(Protocol):
    """The part of a reasoning-gym dataset that is used."""

    def __getitem__(self, index: int) -> dict[str, Any]: ...

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float: ...


def names() -> list[str]:
    """Every task family that can be named."""
    return sorted(name for name in _factory().DATASETS if name != "composite")


def make_family(
    task: str, *, seed: int, size: int, params: Mapping[str, Any] | None, curriculum: Mapping[str, Any] | None
) -> Family:
    """One family.

    Args:
        task: its name in reasoning-gym.
        seed: seed of its generator; ``size``: the size it is reported to have (indices beyond it work all the same).
        params: parameters of its config.
        curriculum: ``level`` sets all attributes of its curriculum, an attribute's name sets that one; ``params``
            overrides what the levels imply.

    Raises:
        SettingError: an unknown family, parameter or attribute (the message lists the known ones), or a refused value.
    """
    datasets = _factory().DATASETS
    if task == "composite" or task not in datasets:
        raise SettingError(unknown("reasoning-gym task", task, names()))
    _warn_of_hash_order(task)
    options = dict(params or {})
    for reserved in ("seed", "size"):
        if reserved in options:
            raise SettingError(f"{reserved} is set next to params, not inside (task {task!r})")
    config_class = datasets[task][1]
    known = [field.name for field in dataclasses.fields(config_class) if field.name not in ("seed", "size")]
    reject_unknown(f"parameter of {task}", options, known)
    wrong = misfits(config_class, options, "params.")
    if wrong:
        raise SettingError("; ".join(wrong))
    settings = {**_curriculum_settings(task, curriculum or {}), **options, "seed": seed, "size": size}
    try:
        family: Family = _factory().create_dataset(task, **settings)
    except (AssertionError, ValueError, TypeError) as error:
        raise SettingError(f"reasoning-gym refuses the parameters of {task!r}: {error} (got {options})") from error
    return family


def generate(family: Family, key: str, position: int) -> dict[str, Any]:
    """Return the entry at ``position``, the same in every process.

    Some families draw from the global random stream although they have one of their own; it is set by ``key`` for
    the draw, and put back.
    """
    state = random.getstate()
    random.seed(key)
    try:
        return family[position]
    finally:
        random.setstate(state)


def _warn_of_hash_order(task: str) -> None:
    if task in HASH_ORDERED and os.environ.get("PYTHONHASHSEED", "random") == "random":
        warnings.warn(
            f"reasoning-gym's {task!r} depends on Python's hash seed: the same id is another task in another process. "
            "Set PYTHONHASHSEED=0 in the environment of every process.",
            stacklevel=2,
        )


def _curriculum_settings(task: str, levels: Mapping[str, Any]) -> dict[str, Any]:
    """Config values that the curriculum implies at the given levels."""
    if not levels:
        return {}
    if task not in _factory().CURRICULA:
        raise SettingError(f"reasoning-gym has no curriculum for {task!r}; use params")
    curriculum = _factory().create_curriculum(task)
    reject_unknown(f"curriculum attribute of {task}", levels, ["level", *curriculum.attributes])
    for name, level in levels.items():
        if isinstance(level, bool) or not isinstance(level, int) or level < 0:
            raise SettingError(f"curriculum.{name} must be an integer of at least 0, got {level!r}")
    if "level" in levels:
        curriculum.set_global_level(levels["level"])
    for name, level in levels.items():
        if name == "level":
            continue
        highest = len(curriculum.attributes[name].levels) - 1
        if level > highest:
            raise SettingError(f"curriculum.{name} goes up to {highest} for {task!r}, got {level}")
        curriculum.set_attr_level(name, level)
    config = curriculum.generate_configuration()
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}


def _factory() -> Any:
    try:
        # The package registers its families on import; the factory module alone would be empty.
        importlib.import_module("reasoning_gym")
        for own in ("quotients", "calculations"):
            importlib.import_module(f"rlinf_envs.reasoning_gym.{own}")
        return importlib.import_module("reasoning_gym.factory")
    except ImportError as error:
        raise absent("reasoning_gym", "rlinf/ReasoningGym-v0") from error
