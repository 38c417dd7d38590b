"""Benchmarks by name: their usual prompts and lengths, over files in the layouts that they are published in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlinf.base.errors import UserError
from rlinf.config.names import nearest

STEP_BY_STEP = "{question}\nPlease reason step by step, and put your final answer within \\boxed{}."
"""The prompt of Qwen2.5-Math (arXiv:2409.12122) and DeepSeek-R1 (arXiv:2501.12948) for these benchmarks."""


@dataclass(frozen=True)
class Suite:
    """One benchmark."""

    line: str
    max_new_tokens: int
    """The usual limit of a response, where neither the command nor the model has a lower one."""
    names: tuple[str, ...]
    """What its file or folder is called where nobody names it, under `data/`."""
    prompt: str = STEP_BY_STEP


SUITES: dict[str, Suite] = {
    "gsm8k": Suite(
        "grade-school word problems, 1,319 test tasks (arXiv:2110.14168); test.jsonl with question, answer (#### 18)",
        1024,
        ("gsm8k", "gsm8k_test.jsonl", "gsm8k.jsonl"),
    ),
    "math500": Suite(
        "500 test tasks of MATH (arXiv:2305.20050); test.jsonl with problem, solution, answer, subject, level",
        4096,
        ("math500", "MATH-500", "math500.jsonl"),
    ),
    "aime": Suite(
        "the American Invitational Mathematics Examination, 30 tasks a year; rows with problem, answer (0 to 999)",
        16384,
        ("aime", "aime24", "aime25", "aime_2024", "aime.jsonl"),
    ),
}


def suite_of(name: str) -> Suite:
    """The suite of this name. Raises UserError that lists the names."""
    if name in SUITES:
        return SUITES[name]
    close = nearest(name, SUITES)
    meant = f" Did you mean {close[0]}?" if close else ""
    raise UserError(f"--suite {name}: there is {', '.join(SUITES)}.{meant}")


def file_of_suite(name: str) -> Path:
    """The suite's own file or folder under `data/`. Raises UserError that says where it was looked for."""
    suite = suite_of(name)
    found = next((path for path in (Path("data") / own for own in suite.names) if path.exists()), None)
    if found is None:
        raise UserError(
            f"--suite {name}: its tasks are not here: {suite.line}. Name the file or folder with --data, or put it at "
            f"data/{suite.names[0]}."
        )
    return found
