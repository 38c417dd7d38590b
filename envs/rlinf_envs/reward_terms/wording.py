"""``format``, ``length`` and ``language``: how a response is worded, whatever its content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlinf_envs.errors import SettingError
from rlinf_envs.reward_formats import FORMATS_OF_SEVERAL_LINES, format_check
from rlinf_envs.reward_terms.language_detection import SCRIPTS, script_share
from rlinf_envs.suggest import unknown

if TYPE_CHECKING:  # the protocol is in a module that imports torch, which an env worker must not load
    from rlinf.interfaces import RewardTerm


def format_term(*, pattern: str) -> RewardTerm:
    """Give 1 if the response has the format ``pattern`` (:func:`~rlinf_envs.reward_formats.format_check`), else 0."""
    of_one_line = format_check(pattern)
    of_several = FORMATS_OF_SEVERAL_LINES.get(pattern, of_one_line)

    def term(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
        return float((of_several if "\n" in answer.strip() else of_one_line)(response))

    return term


def length_term(*, target: int = 1000, slack: int = 1000) -> RewardTerm:
    """0 up to ``target`` characters, then down to -1 on a straight line over the next ``slack`` characters."""
    if target < 0 or slack <= 0:
        raise SettingError(f"reward.length needs target >= 0 and slack > 0 (characters), got {target} and {slack}")

    def term(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
        return -min(1.0, max(0.0, (len(response) - target) / slack))

    return term


def language_term(*, expected: str = "en") -> RewardTerm:
    """Return the share of the response's letters in the script of ``expected``; 1 if there are no letters."""
    if expected not in SCRIPTS:
        raise SettingError("reward.language.expected: " + unknown("language", expected, SCRIPTS))

    def term(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
        return script_share(response, expected)

    return term
