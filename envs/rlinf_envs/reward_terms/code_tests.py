"""``code_tests``: a response's program is run on the row's tests, in the sandbox."""

from __future__ import annotations

import functools
import json
import re
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlinf.base.json_text import parse_json
from rlinf_envs.reward_terms.harness import harness, reading
from rlinf_envs.reward_terms.program_results import same_output, same_value
from rlinf_envs.reward_terms.programs import program_of
from rlinf_envs.reward_terms.row_tests import tests_of
from rlinf_envs.reward_terms.written_tests import Calls, Statements, Texts
from rlinf_envs.sandbox import Limits, Sandbox

if TYPE_CHECKING:
    from rlinf.interfaces import RewardTerm

_REMEMBERED = 4096
_OUTPUT_CHARS = 2_000_000
"""Of one run: competitive tasks request up to 10^5 numbers."""


def code_tests(
    *,
    field: str | list[str] = "tests",
    partial: bool = True,
    time_s: float = 4.0,
    memory_mb: int = 512,
) -> RewardTerm:
    """Return the share of tests that the program passes.

    Args:
        field: where in the row they stand, or several fields whose tests are joined: a list of statements
            (``assert f(2) == 4``), one text of them, ``{inputs: [...], outputs: [...]}``, what the program reads and
            has to print, or another form of :mod:`~rlinf_envs.reward_terms.row_tests`. Dots reach into objects.
        partial: false gives 1 if all pass, and otherwise 0.
        time_s, memory_mb: limits of one run (see :class:`rlinf_envs.sandbox.Limits`).

    Raises:
        SettingError: there is no sandbox on this machine.
    """
    sandbox = Sandbox(Limits(time_s=time_s, memory_mb=memory_mb, output_chars=_OUTPUT_CHARS))
    fields = [field] if isinstance(field, str) else field

    # The answers of a group are often the same.
    @functools.lru_cache(maxsize=_REMEMBERED)
    def passed(program: str, tests: Statements | Calls) -> float:
        mark = secrets.token_hex(16)
        results = re.findall(rf"^{mark}(.*)$", sandbox.run(harness(program, tests, mark)).output, re.MULTILINE)
        # A run that ended early has fewer results, and one that forged some has more.
        if len(results) > tests.count:
            return 0.0
        if isinstance(tests, Statements):
            return results.count("1") / tests.count
        right = (json.loads(right) for _, right in tests.pairs)
        return sum(map(_is_right, results, right)) / tests.count

    @functools.lru_cache(maxsize=_REMEMBERED)
    def printed(program: str, stdin: str, requested: str) -> bool:
        outcome = sandbox.run(reading(program), stdin)
        return outcome.status == "done" and same_output(outcome.output, requested)

    def term(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
        program, tests = program_of(response), tests_of(fields, row)
        if isinstance(tests, Texts):
            share = sum(printed(program, *pair) for pair in tests.pairs) / len(tests.pairs)
        else:
            share = passed(program, tests)
        return share if partial else float(share == 1.0)

    return term


def _is_right(result: str, requested: list[Any]) -> bool:
    """Whether the JSON of a result is one of the values that are right."""
    try:
        value = parse_json(result)
    except ValueError:  # the call failed
        return False
    return any(same_value(value, each) for each in requested)
