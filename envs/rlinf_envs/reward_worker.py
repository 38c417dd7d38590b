"""Runs custom reward functions in a process: a call can hang, or end its process, without harm."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any, Literal

from rlinf.base.reward_value import RewardValueError, reward_value
from rlinf_envs import reward_calls
from rlinf_envs.custom_rewards import find_function


def call(
    path: str, prompt: str, response: str, answer: str, row: Mapping[str, Any]
) -> tuple[Literal["value"], float] | tuple[Literal["problem"], str]:
    """Return the number from the function at ``path``, or what is wrong with it and at which of its lines."""
    function = find_function(path)
    try:
        value = reward_calls.call(function, reward_calls.Scored(prompt, response, answer, row))
    except BaseException as error:  # SystemExit too: it would end this process without a word
        words = " ".join(" ".join((str(error), *_notes(error))).split())  # one paragraph
        why = f"{type(error).__name__}: {words:.500}" if words else type(error).__name__
        return "problem", f"raised {why}{_location(error, function)}"
    try:
        return "value", reward_value(value)
    except RewardValueError as error:
        return "problem", str(error)


def _notes(error: BaseException) -> list[str]:
    return [f"({note})" for note in getattr(error, "__notes__", ())]


def _location(error: BaseException, function: Any) -> str:
    """Find the last line of the function's own file that led to ``error``."""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f", at {frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}: {frames[-1].line}" if frames else ""
