"""``code_tests``: a response's program is run on the row's tests, in the sandbox."""

from __future__ import annotations

import functools
import math
import re
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlinf_envs.reward_terms.answering import row_value
from rlinf_envs.reward_terms.harness import harness, reading
from rlinf_envs.reward_terms.programs import program_of
from rlinf_envs.reward_terms.written_tests import Calls, Statements, Texts, tests_of
from rlinf_envs.sandbox import Limits, Sandbox

if TYPE_CHECKING:
    from rlinf.interfaces import RewardTerm

_REMEMBERED = 4096
_TOLERANCE = 1e-6
"""Of numbers that the test writes with decimals, relative and absolute."""


def code_tests(
    *,
    field: str = "tests",
    partial: bool = True,
    time_s: float = 4.0,
    memory_mb: int = 512,
) -> RewardTerm:
    """Return the share of tests that the program passes.

    Args:
        field: where in the row they stand: a list of statements (``assert f(2) == 4``), one text of them,
            ``{inputs: [...], outputs: [...]}``, what the program reads and has to print, or another form of
            :mod:`~rlinf_envs.reward_terms.written_tests`.
        partial: false gives 1 if all pass, and otherwise 0.
        time_s, memory_mb: limits of one run (see :class:`rlinf_envs.sandbox.Limits`).

    Raises:
        SettingError: there is no sandbox on this machine.
    """
    sandbox = Sandbox(Limits(time_s=time_s, memory_mb=memory_mb))

    # The answers of a group are often the same.
    @functools.lru_cache(maxsize=_REMEMBERED)
    def passed(program: str, tests: Statements | Calls) -> float:
        mark = secrets.token_hex(16)
        results = re.findall(rf"^{mark}([01])$", sandbox.run(harness(program, tests, mark)).output, re.MULTILINE)
        # A run that ended early has fewer results, and one that forged some has more.
        return results.count("1") / tests.count if len(results) <= tests.count else 0.0

    @functools.lru_cache(maxsize=_REMEMBERED)
    def printed(program: str, stdin: str, requested: str) -> bool:
        outcome = sandbox.run(reading(program), stdin)
        return outcome.status == "done" and same_output(outcome.output, requested)

    def term(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
        program, tests = program_of(response), tests_of(field, row_value("code_tests", field, row), row)
        if isinstance(tests, Texts):
            share = sum(printed(program, *pair) for pair in tests.pairs) / len(tests.pairs)
        else:
            share = passed(program, tests)
        return share if partial else float(share == 1.0)

    return term


def same_output(output: str, requested: str) -> bool:
    """Whether two outputs have the same lines, but for blanks at their ends and the last digits of decimal numbers.

    >>> same_output("0.30000000000000004 \\n", "0.3"), same_output("2.0", "2")
    (True, False)
    """
    lines, others = ([line.rstrip() for line in text.strip().splitlines()] for text in (output, requested))
    return len(lines) == len(others) and all(
        line == other or _same_numbers(line.split(), other.split()) for line, other in zip(lines, others, strict=True)
    )


def _same_numbers(words: list[str], others: list[str]) -> bool:
    return len(words) == len(others) and all(
        word == other or _near(word, other) for word, other in zip(words, others, strict=True)
    )


def _near(word: str, requested: str) -> bool:
    if not re.fullmatch(r"[-+]?\d*\.\d+(?:[eE][-+]?\d+)?|[-+]?\d+[eE][-+]?\d+", requested):
        return False
    try:
        value = float(word)
    except ValueError:
        return False
    return math.isclose(value, float(requested), rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
