"""``code_tests``: a response's program is run on the row's tests, in the sandbox."""

from __future__ import annotations

import functools
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlinf_envs.errors import SettingError
from rlinf_envs.extraction import without_thoughts
from rlinf_envs.reward_terms.answering import row_value
from rlinf_envs.sandbox import Limits, Sandbox

if TYPE_CHECKING:
    from rlinf.interfaces import RewardTerm

_BLOCK = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_REMEMBERED = 4096

# The program first, then the tests one by one, in its names. The mark is new for each run, so that no program can print
# a result that it has learned by heart.
_HARNESS = """
names = {{"__name__": "program"}}
exec(compile({program!r}, "program.py", "exec"), names)
passed = []
for test in {tests!r}:
    try:
        exec(compile(test, "test.py", "exec"), names)
        passed.append("1")
    except Exception:
        passed.append("0")
print("\\n{mark}" + "".join(passed), flush=True)
"""


def program_of(response: str) -> str:
    """Return the last complete block of code behind the thoughts; all that follows them if there is none."""
    response = without_thoughts(response)
    blocks = _BLOCK.findall(response)
    return str(blocks[-1]) if blocks else response


def code_tests(
    *,
    field: str = "tests",
    partial: bool = True,
    time_s: float = 4.0,
    memory_mb: int = 512,
) -> RewardTerm:
    """Return the share of tests that the program passes.

    Args:
        field: where in the row they stand: a list of statements (``assert f(2) == 4``), one text of them, or
            ``{inputs: [...], outputs: [...]}``, what the program reads and has to print.
        partial: false gives 1 if all pass, and otherwise 0.
        time_s, memory_mb: limits of one run (see :class:`rlinf_envs.sandbox.Limits`).

    Raises:
        SettingError: there is no sandbox on this machine.
    """
    sandbox = Sandbox(Limits(time_s=time_s, memory_mb=memory_mb))

    # The answers of a group are often the same.
    @functools.lru_cache(maxsize=_REMEMBERED)
    def passed(program: str, tests: tuple[str, ...]) -> float:
        mark = secrets.token_hex(16)
        outcome = sandbox.run(_HARNESS.format(program=program, tests=list(tests), mark=mark))
        result = re.search(rf"^{mark}([01]+)$", outcome.output, re.MULTILINE)
        return result.group(1).count("1") / len(tests) if result else 0.0

    @functools.lru_cache(maxsize=_REMEMBERED)
    def printed(program: str, given: str, requested: str) -> bool:
        outcome = sandbox.run(program, given)
        return outcome.status == "done" and _lines(outcome.output) == _lines(requested)

    def term(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
        program, tests = program_of(response), row_value("code_tests", field, row)
        if isinstance(tests, Mapping):
            inputs, requested = _pairs(field, tests)
            share = sum(printed(program, *pair) for pair in zip(inputs, requested, strict=True)) / len(inputs)
        else:
            share = passed(program, _statements(field, tests))
        return share if partial else float(share == 1.0)

    return term


def _statements(field: str, tests: Any) -> tuple[str, ...]:
    listed = (tests,) if isinstance(tests, str) else tuple(map(str, tests)) if isinstance(tests, Sequence) else ()
    if not listed:
        raise SettingError(f"reward.code_tests: field {field} of a row holds no test but {tests!r:.80}")
    return listed


def _pairs(field: str, tests: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    inputs, requested = tests.get("inputs"), tests.get("outputs")
    if not isinstance(inputs, Sequence) or not isinstance(requested, Sequence) or not len(inputs) == len(requested) > 0:
        raise SettingError(
            f"reward.code_tests: field {field} of a row needs as many inputs as outputs, got {tests!r:.80}"
        )
    return [str(each) for each in inputs], [str(each) for each in requested]


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]
