"""Writes tasks.jsonl: small functions to write, a correct program for each, and tests that decide.

python examples/code_tasks/make_tasks.py
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

FILE = Path(__file__).with_name("tasks.jsonl")
ARGUMENTS = (0, 2, 7)


def tasks() -> Iterator[tuple[str, str]]:
    """The task in words, and the expression that does it."""
    for a in range(2, 10):
        for b in range(1, 10):
            yield f"multiply x by {a}, then add {b}", f"x * {a} + {b}"
            yield f"multiply x by {a}, then subtract {b}", f"x * {a} - {b}"
            yield f"add {b} to x, then multiply by {a}", f"(x + {b}) * {a}"


def row(words: str, expression: str) -> dict[str, object]:
    values = [(x, eval(expression, {"x": x})) for x in ARGUMENTS]
    return {
        "prompt": f"Write a function f: {words}.",
        "response": f"def f(x):\n    return {expression}",
        "tests": [f"assert f({x}) == {value}" for x, value in values],
    }


def main() -> None:
    rows = [row(*task) for task in tasks()]
    random.Random(0).shuffle(rows)
    FILE.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
