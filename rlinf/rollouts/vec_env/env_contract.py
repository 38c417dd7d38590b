"""What gymnasium's `reset` and `step` return, held against its interface: numbers and flags that mean something."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from rlinf.base.errors import UserError
from rlinf.base.reward_value import RewardValueError, reward_value
from rlinf.base.user_code import kind_of

SUCCESS_KEYS = ("is_success", "success", "task_success", "solved", "succeeded")
"""Keys by which infos usually name success."""
_PARTS = {"reset": "observation, info", "step": "observation, reward, terminated, truncated, info"}
_COUNTS = {method: len(words.split(", ")) for method, words in _PARTS.items()}


class EnvContractError(UserError, TypeError):
    """An environment returned something that gymnasium's interface does not allow."""


def parts(returned: Any, method: str) -> Any:
    """Check that the result of ``method`` has as many parts as gymnasium requires, and return it."""
    count = _COUNTS[method]
    if not isinstance(returned, tuple) or len(returned) != count:
        description = f"{len(returned)} values" if isinstance(returned, tuple) else type(returned).__name__
        raise EnvContractError(
            f"{method}() returned {description} instead of the {count} of gymnasium's interface ({_PARTS[method]})"
        )
    return returned


def first_observation(returned: Any) -> Any:
    """Return the observation of what `reset` gave; raise EnvContractError if there is no info next to it.

    An observation of two parts alone, as environments of gym return it, is no such pair.
    """
    observation, info = parts(returned, "reset")
    if info is not None and not isinstance(info, Mapping):
        raise EnvContractError(f"reset() returned {kind_of(info)} as its info, which must be a dictionary")
    return observation


def number(reward: Any) -> float:
    """Convert a reward (:func:`reward_value`); raise EnvContractError if it is no number."""
    try:
        return reward_value(reward)
    except RewardValueError as error:
        raise EnvContractError(f"step() returned the reward {reward!r}, which is not a number") from error


def flag(value: Any, name: str) -> bool:
    """Convert what ``name`` is: a flag, a number, or an array of them, of which any counts.

    Texts, NaN and None have no meaning here: the text "False" would be true.
    """
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or bool(np.isnan(array).any()):
        raise EnvContractError(f"step() returned {name} {value!r}, which is neither true nor false")
    return bool(array.any())


def unreported_success(key: str, reported: Collection[str]) -> str:
    """Return a sentence on a ``key`` of success that is not among the keys of all infos; empty if it is.

    >>> unreported_success("success", {"is_success", "steps"})
    "no info has the key 'success' (env.success_key). Infos have is_success, steps: set env.success_key: is_success"
    """
    if key in reported:
        return ""
    usual = [name for name in SUCCESS_KEYS if name in reported]
    close = usual or difflib.get_close_matches(key, reported, n=1)
    advice = f"set env.success_key: {close[0]}" if close else "report success in the info of each step, or name its key"
    there = f"Infos have {', '.join(sorted(reported))}" if reported else "Infos have no keys"
    return f"no info has the key {key!r} (env.success_key). {there}: {advice}"


def success_of(info: Any, key: str) -> bool | None:
    """Return the success that an `info` reports; None if it reports none."""
    if info is not None and not isinstance(info, Mapping):
        raise EnvContractError(f"step() returned the info {info!r}, which is not a dictionary")
    value = info.get(key) if info else None
    return None if value is None else flag(value, f"info[{key!r}]")
