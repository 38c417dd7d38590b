"""Equations of numbers in a written step: whether each of them holds.

Worked solutions write units, currencies, percentages, LaTeX and words around their numbers ("111 students - 60 girls
= 51 boys"). What can be read in only one way is checked; what cannot, such as algebra or minutes next to hours, has no
verdict, so that a right step is not called wrong.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from dataclasses import dataclass
from fractions import Fraction

from rlinf_envs.arithmetic import exact_value, in_plain_signs

_MARKER = re.compile(r"^\s*(?:[-*•+]\s+|\(?\d{1,2}[.)]\s+(?=\S)|#{1,6}\s+)+")
"""A bullet, number or heading in front of a step."""
_MARKDOWN = re.compile(r"(?<![\d)])(?<![\d)] )\*\*|\*\*(?!\s?[\d(])|__|`")
"""Emphasis and code; 5 ** 2 stays."""
_RELATION = re.compile(r"<=|>=|!=|=>|=<|:=|[≤≥≠≈]|\\(?:approx|leq?|geq?|neq?)(?![A-Za-z])")

_NUMBER = r"(?:\d{1,3}(?:,\d{3})++(?:\.\d+)?|\d++(?:\.\d+)?|\.\d+)(?!,?\d)(?:\s?%(?!\s*[\d(]))?"
_PLAIN = r"[\d\s.,+*/^%-]"
_GROUP = rf"\({_PLAIN}*+(?:\({_PLAIN}*+(?:\({_PLAIN}*+\){_PLAIN}*+)*+\){_PLAIN}*+)*+\)"
_UNIT = r"(?>(?:\s+[A-Za-z][A-Za-z'’/-]*[A-Za-z](?![A-Za-z'’/-])){0,4}+)"
_TERM = rf"(?>[-+]?(?:{_NUMBER}|{_GROUP})){_UNIT}"
_EXPRESSION = re.compile(rf"{_TERM}(?:\s*(?:\*\*|[-+*/^])\s*{_TERM})*")
_OPERATOR = re.compile(r"(?<=[\d)%A-Za-z])\s*[-+*/^]")
_WORD = re.compile(r"[A-Za-z][A-Za-z'’/-]+")
_OTHER_VALUES = frozenset(
    {"dozen", "dozens", "hundred", "hundreds", "thousand", "thousands", "million", "millions", "billion", "billions",
     "percent", "half", "third", "quarter", "times", "squared", "cubed", "pi", "sqrt", "sin", "cos", "tan", "log", "ln",
     "exp", "mod", "modulo", "choose", "remainder", "plus", "minus", "over", "rounded", "round", "approximately",
     "approx", "nearest", "roughly", "about"}
)  # fmt: skip
"""Words with which a number is another one, or is none that equals exactly."""
_MEASURES = tuple(
    frozenset(words.split())
    for words in (
        "second minute hour day week month year decade",
        "inch inche foot feet yard mile meter metre centimeter centimetre millimeter kilometer kilometre cm mm km",
        "gram kilogram kg ounce pound ton mg lb",
        "cup pint quart gallon liter litre milliliter millilitre ml tablespoon teaspoon",
        "dollar cent penny pennie pence euro nickel dime",
    )
)
_CENTS = re.compile(r"\b(?:cents?|pence|penny|pennies)\b")
_COINS = re.compile(r"[$£€]|\b(?:dollar|euro|pound)")
_BEFORE = re.compile(
    r"(?:[\d%]|\b(?:half|third|quarter|fifth|tenth|percent|root))\s+of\s*$"
    r"|\b(?:multipl|divid)\w+\b[^=]{0,40}\bby\s*$"
    r"|\b(?:times|plus|minus|than|over|twice|double|sqrt|log|sin|cos|tan)\s*$"
    r"|(?:^|\s)[A-Za-z]\s*$(?<![aAI]\s)|[\w.:_^}\])\\!|/]$|[-+*/^]\s*$|[A-Za-z]\($",
)
"""Text in front of an expression that is part of it: "30% of", "twice", a variable, an operator."""
_AFTER = re.compile(r"[A-Za-z_^\\(:!|°/]|\s*[-+*/^]|\s*\((?!\s*[A-Za-z]{2})|\s+[B-HJ-Zb-z](?![A-Za-z])|\s+\d")
"""Text behind an expression that is part of it: "2x", "5!", "3 R 2"."""
_SHORT_DECIMALS = 10**6


@dataclass(frozen=True)
class _Side:
    """Arithmetic at one side of a sign of equality. ``readings``: its possible values."""

    readings: tuple[Fraction, ...]
    words: frozenset[str]
    decimals: int | None
    """Digits behind the point of a number alone; None for anything else."""


def equations(step: str) -> list[bool]:
    """Return whether each equation of numbers in ``step`` holds, left to right (``1 + 1 = 2 = 3`` gives true, false).

    A decimal number on the right may be rounded if the left has no short decimal form: ``2 / 3 = 0.67``.
    """
    cents = _CENTS.search(step) is not None and _COINS.search(step) is not None
    text = _RELATION.sub(" ; ", _MARKDOWN.sub("", _MARKER.sub("", step)))
    parts = in_plain_signs(text).replace("==", "=").split("=")
    verdicts = []
    for left, right in itertools.pairwise(parts):
        before, after = _at_end(left), _at_start(right)
        if before is None or after is None or cents or _mixed(before.words | after.words):
            continue
        verdicts.append(any(_equal(one, other, after.decimals) for one in before.readings for other in after.readings))
    return verdicts


def _at_end(part: str) -> _Side | None:
    """Return the arithmetic that ends ``part``; None if there is none that can be read in only one way."""
    text = part.rstrip()
    last = next(iter(deque(_EXPRESSION.finditer(text), maxlen=1)), None)
    if last is None or last.end() != len(text):
        return None
    before = text[: last.start()]
    alone = _OPERATOR.search(last.group()) is None
    if _BEFORE.search(before) or (alone and before.strip()):
        return None
    return _side(last.group())


def _at_start(part: str) -> _Side | None:
    """Return the arithmetic that starts ``part``; None if there is none that can be read in only one way."""
    text = part.strip()
    result = _EXPRESSION.match(text)
    if result is None or _AFTER.match(text[result.end() :]):
        return None
    return _side(result.group())


def _side(expression: str) -> _Side | None:
    words = frozenset(word.lower() for word in _WORD.findall(expression))
    if words & _OTHER_VALUES:
        return None
    bare = _WORD.sub("", expression)
    # 80% is 0.8 in a product, and 80 where all sides count percents.
    spellings = dict.fromkeys((bare.replace("%", "/100"), bare.replace("%", "")))
    values = tuple(value for value in map(exact_value, spellings) if value is not None)
    decimals = re.fullmatch(r"[-+]?[\d,]*\.(\d+)", bare.strip())
    return _Side(values, words, len(decimals.group(1)) if decimals else None) if values else None


def _mixed(words: frozenset[str]) -> bool:
    """Whether the words measure one kind of thing in several units, such as minutes and hours."""
    parts = {part.rstrip("s") for word in words for part in word.split("/")}
    return any(len(parts & measures) > 1 for measures in _MEASURES)


def _equal(value: Fraction, result: Fraction, decimals: int | None) -> bool:
    if value == result or (value * _SHORT_DECIMALS).denominator == 1:
        return value == result
    rounding = Fraction(1, 2 * 10**decimals) if decimals else 0
    return abs(value - result) <= max(rounding, abs(value) / 10**12)
