"""Reward terms, composed by configuration.

    reward: {correctness: 1.0, format: 0.1, length: {weight: 0.2, target: 800, slack: 400},
             language: {weight: 0.1, expected: en}, custom: {"mypackage.rewards:brevity": 0.5}}

Every term gives one number per response; the reward is their weighted sum. A reward that is not finite never leaves
here: the row gets 0 and is reported as quarantined.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlinf_envs.custom_rewards import DEFAULT_TIMEOUT_S, CustomReward
from rlinf_envs.errors import RewardError, SettingError
from rlinf_envs.reward_formats import format_check
from rlinf_envs.suggest import reject_unknown, unknown
from rlinf_envs.tasks import Judgement, Task

if TYPE_CHECKING:  # the protocol lives beside the tensor types, and an env worker must not pay for importing torch
    from rlinf.interfaces import RewardTerm

TERMS = ("correctness", "format", "length", "language", "custom")

SCRIPTS: dict[str, frozenset[str]] = {
    "en": frozenset({"LATIN"}),
    "de": frozenset({"LATIN"}),
    "fr": frozenset({"LATIN"}),
    "es": frozenset({"LATIN"}),
    "ru": frozenset({"CYRILLIC"}),
    "el": frozenset({"GREEK"}),
    "zh": frozenset({"CJK"}),
    "ja": frozenset({"CJK", "HIRAGANA", "KATAKANA"}),
    "ko": frozenset({"HANGUL"}),
    "ar": frozenset({"ARABIC"}),
    "he": frozenset({"HEBREW"}),
    "hi": frozenset({"DEVANAGARI"}),
    "th": frozenset({"THAI"}),
}
"""Language code -> scripts (first word of the Unicode character name) that its text is written in."""


@dataclass(frozen=True)
class Rewards:
    """What :meth:`RewardSum.score` returns for n responses."""

    total: NDArray[np.float32]
    """[n], finite; 0 where quarantined."""
    terms: dict[str, NDArray[np.float32]]
    """Each term's own value [n], before its weight."""
    quarantined: NDArray[np.bool_]
    """[n], true where some term gave NaN or an infinity."""


def format_term(pattern: str) -> RewardTerm:
    """1 where the response has the format ``pattern`` (see :func:`~rlinf_envs.reward_formats.format_check`), else 0."""
    found = format_check(pattern)

    def term(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
        return float(found(response))

    return term


def length_term(target: int, slack: int) -> RewardTerm:
    """0 up to ``target`` characters, then down to -1 on a straight line over the next ``slack`` characters."""
    if target < 0 or slack <= 0:
        raise SettingError(f"reward.length needs target >= 0 and slack > 0 (characters), got {target} and {slack}")

    def term(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
        return -min(1.0, max(0.0, (len(response) - target) / slack))

    return term


def language_term(expected: str) -> RewardTerm:
    """The share of the response's letters that belong to the script of ``expected``; 1 where there are no letters."""
    if expected not in SCRIPTS:
        raise SettingError("reward.language.expected: " + unknown("language", expected, SCRIPTS))
    scripts = SCRIPTS[expected]

    def term(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
        # LaTeX commands are markup: they are Latin in every language.
        letters = [_script(char) for char in re.sub(r"\\[A-Za-z]+", "", response) if char.isalpha()]
        return sum(script in scripts for script in letters) / len(letters) if letters else 1.0

    return term


@lru_cache(maxsize=4096)
def _script(char: str) -> str:
    return unicodedata.name(char, "UNKNOWN").split(" ")[0].split("-")[0]


class RewardSum:
    """The weighted sum of the configured terms."""

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        default_format: str = "boxed",
        custom_timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """
        Args:
            config: term name -> weight, or a mapping with ``weight`` and the term's options; ``custom`` maps
                "module:function" to weights. Nothing given means ``{"correctness": 1.0}``.
            default_format: the format that the ``format`` term asks for when it names none.
            custom_timeout_s: deadline of one call of a custom function, seconds.

        Raises:
            SettingError: an unknown term or option, a weight that is no finite number, a custom function that is not
                there.
        """
        settings = {"correctness": 1.0} if config is None else dict(config)
        reject_unknown("reward term", settings, TERMS)
        self.weights: dict[str, float] = {}
        self._functions: dict[str, RewardTerm] = {}
        for name, value in settings.items():
            if name == "custom":
                for path, weight in _mapping("reward.custom", value).items():
                    self._add(f"custom:{path}", weight, CustomReward(path, timeout_s=custom_timeout_s))
            elif name == "correctness":
                options = _options(name, value, {})
                self._add(name, options["weight"], None)
            elif name == "format":
                options = _options(name, value, {"pattern": default_format})
                self._add(name, options["weight"], format_term(options["pattern"]))
            elif name == "length":
                options = _options(name, value, {"target": 1000, "slack": 1000})
                self._add(name, options["weight"], length_term(options["target"], options["slack"]))
            else:
                options = _options(name, value, {"expected": "en"})
                self._add(name, options["weight"], language_term(options["expected"]))

    def _add(self, name: str, weight: Any, function: RewardTerm | None) -> None:
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not math.isfinite(weight):
            raise SettingError(f"reward.{name}: the weight must be a finite number, got {weight!r}")
        self.weights[name] = float(weight)
        if function is not None:
            self._functions[name] = function

    def score(
        self, prompts: Sequence[str], responses: Sequence[str], tasks: Sequence[Task], judgements: Sequence[Judgement]
    ) -> Rewards:
        """Rewards of n responses; all four sequences have length n.

        Raises:
            RewardError: a custom function raised, or returned something that is no number.
        """
        total = np.zeros(len(responses), dtype=np.float64)
        columns: dict[str, NDArray[np.float32]] = {}
        for name, weight in self.weights.items():
            if name in self._functions:
                function = self._functions[name]
                values = [
                    _call(name, function, prompt, response, task)
                    for prompt, response, task in zip(prompts, responses, tasks, strict=True)
                ]
            else:
                values = [judgement.score for judgement in judgements]
            column = np.asarray(values, dtype=np.float64)
            with np.errstate(over="ignore", invalid="ignore"):
                columns[name] = column.astype(np.float32)
                total += weight * column
        with np.errstate(over="ignore"):
            rounded = total.astype(np.float32)
        quarantined = ~np.isfinite(rounded)
        return Rewards(np.where(quarantined, np.float32(0.0), rounded), columns, quarantined)


def _call(name: str, function: RewardTerm, prompt: str, response: str, task: Task) -> float:
    try:
        return float(function(prompt=prompt, response=response, answer=task.answer, row=task.row))
    except RewardError as error:
        raise RewardError(f"reward term {name!r} {error} (question: {task.question[:80]!r})") from None


def _mapping(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SettingError(f"{where} must be a mapping, got {value!r}")
    return value


def _options(name: str, value: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """A term's settings: a bare number is its weight."""
    given = dict(value) if isinstance(value, Mapping) else {"weight": value}
    reject_unknown(f"option of reward.{name}", given, ["weight", *defaults])
    if "weight" not in given:
        raise SettingError(f"reward.{name} needs a weight")
    return {**defaults, **given}
