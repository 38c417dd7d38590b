"""How large the numbers are that an expression writes: algebra would work them out digit by digit."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from rlinf_envs.arithmetic import ArithmeticFault, NumberTooLarge, evaluate, from_latex

MAX_EXPONENT = 100_000
MAX_FACTORIAL = 10_000

_TOKEN = re.compile(r"\\[A-Za-z]+|\d+|\S")
_BRACKETS = {")": "(", "}": "{", "]": "["}
_BINOMIALS = (r"\binom", r"\dbinom", r"\tbinom")


def too_large(text: str) -> bool:
    """Whether ``text`` writes a power, a factorial or a binomial coefficient of plain numbers that is not worth trying.

    A power counts with those that it is raised to: (10^{999})^{9999}. What contains letters has no size here.
    """
    tokens = _TOKEN.findall(text)
    partners = _partners(tokens)
    raised = 1.0
    for index, token in enumerate(tokens):
        if token == "^":
            size = _size(_exponent(tokens, partners, index + 1))
            raised = size * max(raised, 1.0) if tokens[max(index - 1, 0)] in _BRACKETS else size
            if raised > MAX_EXPONENT:
                return True
        elif token == "!" or token in _BINOMIALS:
            neighbour = index - 1 if token == "!" else index + 1
            if _size(_operand(tokens, partners, neighbour)) > MAX_FACTORIAL:
                return True
    return False


def _partners(tokens: Sequence[str]) -> dict[int, int]:
    """Return the index of the other bracket, for each bracket that has one."""
    partners: dict[int, int] = {}
    waiting: list[int] = []
    for index, token in enumerate(tokens):
        if token in _BRACKETS.values():
            waiting.append(index)
        elif waiting and _BRACKETS.get(token) == tokens[waiting[-1]]:
            opening = waiting.pop()
            partners[opening], partners[index] = index, opening
    return partners


def _operand(tokens: Sequence[str], partners: dict[int, int], index: int) -> Sequence[str]:
    """Return the token at ``index``, or all that stand in the bracket that opens or closes there."""
    if not 0 <= index < len(tokens):
        return []
    first, last = sorted((index, partners.get(index, index)))
    return tokens[first + 1 : last] if first < last else tokens[first : last + 1]


def _exponent(tokens: Sequence[str], partners: dict[int, int], index: int) -> Sequence[str]:
    """Return the operand at ``index``, with the powers that it is raised to: 9^9 in 9^9^9."""
    end = partners.get(index, index) + 1
    while tokens[end : end + 1] == ["^"]:
        end = partners.get(end + 1, end + 1) + 1
    return _operand(tokens, partners, index) if end == partners.get(index, index) + 1 else tokens[index:end]


def _size(tokens: Sequence[str]) -> float:
    """Compute the absolute value of plain arithmetic and of factorials of it; 1 for everything else."""
    if tokens and tokens[-1] == "!":
        inner = _size(tokens[:-1])
        return math.factorial(int(inner)) if inner < 20 else math.inf
    try:
        return float(abs(evaluate(from_latex(" ".join(tokens)))))
    except (NumberTooLarge, OverflowError):
        return math.inf
    except ArithmeticFault:
        return 1.0
