"""The definition of a reward: one number, wherever a function or an environment of a user's own returns it."""

from __future__ import annotations

import numbers
from decimal import Decimal
from typing import Any


class RewardValueError(ValueError):
    """A reward that is no number; the message has the value and its kind."""


def reward_value(reward: Any) -> float:
    """Return a reward as a float; NaN and infinities pass, since their row decides what becomes of them.

    Numbers of Python, NumPy and torch count, arrays and tensors of one element, and flags as 1 and 0. Text, None,
    complex numbers, lists and arrays of several elements do not. Raises RewardValueError.

    >>> reward_value(True), reward_value(Decimal("0.5"))
    (1.0, 0.5)
    >>> reward_value("1.0")
    Traceback (most recent call last):
    rlinf.base.reward_value.RewardValueError: must return a number, got '1.0' (a str)
    """
    value = reward
    if hasattr(value, "item") and hasattr(value, "shape") and all(size == 1 for size in value.shape):
        value = value.item()
    if isinstance(value, numbers.Real | Decimal):
        try:
            return float(value)
        except OverflowError:
            pass
    kind = type(reward).__name__
    shown = "None" if reward is None else f"{reward!r:.200} ({'an' if kind[0].lower() in 'aeiou' else 'a'} {kind})"
    raise RewardValueError(f"must return a number, got {shown}")
