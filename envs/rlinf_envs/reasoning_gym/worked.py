"""Worked demonstrations, for a supervised warm start, of arithmetic chains and of families with solutions.

A model that has only read solutions does not yet answer in the form that a verifier reads: some of its texts
end in the required answer, some stop after the last step. ``demonstrations: {worked: 0.4, steps: 0.6}`` makes
such a mixture. Models that get the way right and its arithmetic wrong are shown ``small_steps``, or
conversations with a calculator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import blake2b
from operator import add, mul, sub
from typing import Any

from rlinf_envs.errors import SettingError
from rlinf_envs.reasoning_gym.small_steps import in_small_steps
from rlinf_envs.reasoning_gym.with_calculator import with_calculator
from rlinf_envs.suggest import reject_unknown
from rlinf_envs.tasks import Task

STYLES = ("answer", "unmarked", "worked", "steps", "small_steps", "calculator")
"""The answer in its format; the answer without it; the steps and then the answer; the steps alone; as ``worked``,
calculations digit by digit; as ``worked``, calculations by the environment's calculator."""

_CHAIN = re.compile(r"-?\d+(?:(?: [-+] -?\d+)+|(?: \* -?\d+)+)")
_CALCULATE = {"+": add, "-": sub, "*": mul}


def chain_steps(expression: str) -> list[str] | None:
    """Compute the equations of a chain of sums and differences, or of products, left to right; None for any other.

    >>> chain_steps("9 - 7 + 5")
    ['9 - 7 = 2', '2 + 5 = 7']
    >>> chain_steps("12 * 3")
    ['12 * 3 = 36']
    """
    if not _CHAIN.fullmatch(expression):
        return None
    first, *rest = expression.split(" ")
    total, lines = int(first), []
    for sign, term in zip(rest[::2], rest[1::2], strict=True):
        result = _CALCULATE[sign](total, int(term))
        lines.append(f"{total} {sign} {term} = {result}")
        total = result
    return lines


def solution_steps(metadata: Mapping[str, Any]) -> list[str] | None:
    """Return the lines of the family's own solution (``answer_cot``, as in gsm_symbolic), without its answer.

    >>> solution_steps({"answer_cot": "He has 3 + 4 = 7.\\n#### 7"})
    ['He has 3 + 4 = 7.']
    """
    solution = str(metadata.get("answer_cot", "")).partition("####")[0]
    return [line.strip() for line in solution.splitlines() if line.strip()] or None


def worked_steps(task: Task) -> list[str] | None:
    """Return the steps to a task's answer, if its family or its expression gives them."""
    metadata = task.row.get("metadata", {})
    return chain_steps(str(metadata.get("expression", ""))) or solution_steps(metadata)


class DemonstrationStyles:
    """Which style a task's demonstration has: drawn by weight from the question's own hash."""

    def __init__(self, weights: Mapping[str, float] | None, *, calculator: bool = False) -> None:
        """``weights``: style -> share; ``calculator``: whether the environment has one.

        Raises:
            SettingError: an unknown style, no share above 0, or a calculator that is not there.
        """
        self._weights = dict(weights or {"answer": 1.0})
        reject_unknown("style of demonstrations", self._weights, STYLES)
        self._total = sum(self._weights.values())
        if self._total <= 0 or min(self._weights.values()) < 0:
            raise SettingError(f"demonstrations needs weights of at least 0, one of them positive: {self._weights}")
        if self._weights.get("calculator") and not calculator:
            raise SettingError("demonstrations: calculator shows calls of one: add tool: calculator")

    def demonstration(self, task: Task, render: Callable[[str], str]) -> list[str]:
        """Return the demonstration: texts of policy and environment in turn, the policy first and last.

        A task without steps shows its answer.
        """
        answer = render(task.answer)
        steps = worked_steps(task)
        style = self._style(task.question)
        if style == "unmarked":
            return [task.answer]
        if steps is None or style == "answer":
            return [answer]
        if style == "calculator":
            return with_calculator([*steps, answer])
        if style == "small_steps":
            steps = [in_small_steps(line) for line in steps]
        return ["\n".join(steps if style == "steps" else [*steps, answer])]

    def _style(self, question: str) -> str:
        digest = blake2b(f"style {question}".encode(), digest_size=8).digest()
        point = int.from_bytes(digest, "little") / 2**64 * self._total
        for style, weight in self._weights.items():
            point -= weight
            if point < 0:
                return style
        return next(reversed(self._weights))
