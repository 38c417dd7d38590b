"""A reward of your own: correct answers earn more the fewer characters they take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlinf_envs.math import verify


def brevity(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
    """Return 0 for a wrong answer; for a correct one 1 minus its length over 80 characters, at least 0."""
    if not verify(response, answer).correct:
        return 0.0
    return max(0.0, 1.0 - len(response) / 80)
