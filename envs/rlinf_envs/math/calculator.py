"""A calculator to converse with: the example of an environment with several turns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from rlinf_envs.arithmetic import ArithmeticFault, evaluate, in_plain_signs
from rlinf_envs.errors import SettingError
from rlinf_envs.extraction import last_boxed, last_hashes, last_tag, without_thoughts
from rlinf_envs.suggest import unknown
from rlinf_envs.tasks import Task
from rlinf_envs.tools.toolbox import ToolSetting

_CALL = re.compile(r"<calc>((?:(?!</?calc>).)*)</calc>", re.DOTALL)

_PERCENT = re.compile(r"(\d[\d,]*+(?:\.\d+)?)\s?%(?!\s*[\d(])(\s+of\b)?")
"""Followed by a number, the sign is that of a remainder."""


class Calculator:
    """Answers ``<calc>12 * 7</calc>`` with ``<result>84</result>``; a final answer ends the conversation.

    So does a response that neither calculates nor answers: nothing would change in another turn.
    """

    def reply(self, task: Task, response: str) -> str | None:
        """Return the result of the last call in ``response``, None if there is none or the final answer is given."""
        text = without_thoughts(response)
        if any(find(text) is not None for find in (last_tag, last_boxed, last_hashes)):
            return None
        calls = _CALL.findall(response)
        if not calls:
            return None
        return result_of(calls[-1])


def calculator_of(tool: str | None, tools: Sequence[ToolSetting]) -> Calculator | None:
    """Return the calculator that the setting ``tool`` selects.

    Raises:
        SettingError: ``tool`` is something else, or there are ``tools`` in addition to it.
    """
    if tool not in (None, "calculator"):
        raise SettingError(unknown("tool", str(tool), ("calculator",)))
    if tool is not None and tools:
        raise SettingError("tool: calculator is a conversation of its own: give tools, or it")
    return Calculator() if tool else None


def call_of(expression: str) -> str:
    """Return the call with which a policy requests the value of an expression."""
    return f"<calc>{expression}</calc>"


def result_of(expression: str) -> str:
    """Return the words with which the calculator answers a call."""
    try:
        return f"<result>{_written(evaluate(in_plain_signs(_percents(expression))))}</result>"
    except ArithmeticFault as fault:
        return f"<result>error: {fault}</result>"


def _percents(expression: str) -> str:
    """Return the expression of a call without the sign of equality at its end, with percents as parts of a hundred."""
    bare = expression.strip().strip("`").rstrip("=? ")
    return _PERCENT.sub(lambda percent: f"({percent[1]}/100)" + ("*" if percent[2] else ""), bare)


def _written(value: Fraction) -> str:
    """Write an integer, a decimal if it is finite and short, else a fraction."""
    if value.denominator == 1:
        return str(value.numerator)
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    # Only denominators of twos and fives have finite decimals; beyond 15 digits a float would round.
    short = rest == 1 and abs(value.numerator) < 10**15 and value.denominator < 10**9
    return repr(float(value)) if short and "e" not in repr(float(value)) else str(value)
