"""A tool and a reward that take long, for timelines."""

import time
from collections.abc import Mapping
from typing import Any


def slow_sum(a: int, b: int) -> int:
    """Adds two numbers.

    Args:
        a: the first
        b: the second
    """
    time.sleep(0.3)
    return a + b


def slow_reward(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
    time.sleep(0.2)
    return 0.0
