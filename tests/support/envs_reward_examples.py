"""Reward functions as a user would write them."""

from collections.abc import Mapping
from typing import Any


def brevity(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
    return 1.0 / (1 + len(response))


def nan_if_empty(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
    return 1.0 if response else float("nan")


def broken(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
    raise KeyError("level")


def wordy(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> str:
    return "good"
