"""A reward of your own: correct answers earn more the fewer characters they took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def brevity(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
    """1 for an empty response, 0 from 80 characters on."""
    return max(0.0, 1.0 - len(response) / 80)
