"""Wrong answers that a family's own function calls right (found in reasoning-gym 0.1.25).

A policy finds such an answer soon, and earns by it what the task should pay for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from rlinf_envs.arithmetic import exact_value

_DIGITS = re.compile(r"\d+")
_INTEGRATES = re.compile(r"integra", re.IGNORECASE)


def refused(task: str, answer: str, entry: Mapping[str, Any]) -> bool:
    """Return whether ``answer`` to an entry of the family ``task`` is wrong, whatever its family returns.

    >>> refused("complex_arithmetic", "nan", {}), refused("complex_arithmetic", "8 + 3i", {})
    (True, False)
    """
    check = _CHECKS.get(task)
    return check is not None and check(answer, entry)


def _not_finite(answer: str, entry: Mapping[str, Any]) -> bool:
    """Check for nan: the family finds its distance to a number to be above no limit."""
    return "nan" in answer.lower() or "inf" in answer.lower()


def _another_word(answer: str, entry: Mapping[str, Any]) -> bool:
    """Check the word: the family takes any text, since Python's ``bool`` of "False" is true."""
    return answer.strip().lower() != str(entry["answer"]).lower()


def _other_numbers(answer: str, entry: Mapping[str, Any]) -> bool:
    """Check the numbers and the value: the family only counts the numbers, and cuts 24.5 to 24."""
    return (
        sorted(map(int, _DIGITS.findall(answer))) != sorted(entry["metadata"]["numbers"]) or exact_value(answer) != 24
    )


def _not_integrated(answer: str, entry: Mapping[str, Any]) -> bool:
    """Check for ``Integral(f, x)``, whose derivative is f, and for a call that integrates."""
    return _INTEGRATES.search(answer) is not None


def _other_values(answer: str, entry: Mapping[str, Any]) -> bool:
    """Check the values: the family takes sorted numbers that are up to 1 off."""
    try:
        values = [float(number) for number in json.loads(answer.replace("'", '"'))]
    except (ValueError, TypeError):
        return False  # the family refuses it
    return values != [float(number) for number in entry["metadata"]["sorted_numbers"]]


def _other_text(answer: str, entry: Mapping[str, Any]) -> bool:
    """Check the letters, whatever their case: the family compares as many as the reference has."""
    return "".join(answer.lower().split()) != "".join(str(entry["answer"]).lower().split())


def _other_list(answer: str, entry: Mapping[str, Any]) -> bool:
    """Check the sorted words: the family counts those in the right positions, and further ones cost nothing."""
    return [word.strip() for word in answer.split(",")] != entry["metadata"]["sorted_words"]


def _other_cells(answer: str, entry: Mapping[str, Any]) -> bool:
    """Check the grid: the family compares as many cells as the reference has."""
    try:
        return bool(json.loads(answer) != json.loads(entry["answer"]))
    except ValueError:
        return True


def _other_probability(answer: str, entry: Mapping[str, Any]) -> bool:
    """Check the value: the family takes each beginning of the reference, such as "0" for 0.375.

    A rounded value counts up to 0.0001 off, as there, and no more than a hundredth of the probability.
    """
    try:
        values, reference = (Fraction(text.replace(",", "")) for text in (answer, str(entry["answer"])))
    except (ValueError, ZeroDivisionError):
        return True
    return abs(values - reference) > min(Fraction(1, 10_000), reference / 100)


_CHECKS: Mapping[str, Callable[[str, Mapping[str, Any]], bool]] = MappingProxyType({
    "coin_flip": _other_probability,
    "complex_arithmetic": _not_finite,
    "figlet_font": _other_text,
    "game_of_life": _other_cells,
    "game_of_life_halting": _another_word,
    "intermediate_integration": _not_integrated,
    "letter_jumble": _other_text,
    "number_sorting": _other_values,
    "puzzle24": _other_numbers,
    "simple_integration": _not_integrated,
    "spell_backward": _other_text,
    "word_sorting": _other_list,
})  # fmt: skip
