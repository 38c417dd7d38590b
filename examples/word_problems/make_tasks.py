"""Writes one-step word problems and sums of two digits as JSONL: python examples/word_problems/make_tasks.py

Training and evaluation share no pair of numbers: a fifth of all pairs (a, b) with a and b from 2 to 9 is kept for
evaluation, so that a policy cannot pass by remembering sums that it was rewarded for. ``worked`` is a worked solution,
for supervised training. The same seed writes the same
files; those beside this script are what its defaults write.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple


class Wording(NamedTuple):
    """A question with places for names, a thing and two numbers, and how its answer is computed."""

    text: str
    answer: Callable[[int, int], int]


SIGNS = {"add": "+", "subtract": "-", "multiply": "*"}


WORDINGS = {
    "add": (
        Wording("What is {a} + {b}?", int.__add__),
        Wording("{x} has {a} {things}. {y} gives {x} {b} more. How many {things} does {x} have now?", int.__add__),
        Wording(
            "There are {a} {things} on the table and {b} {things} in the box. How many {things} are there in total?",
            int.__add__,
        ),
        Wording(
            "{x} buys {a} {things} in the morning and {b} {things} in the evening. How many {things} did {x} buy?",
            int.__add__,
        ),
    ),
    "subtract": (
        Wording("What is {a} - {b}?", int.__sub__),
        Wording("{x} has {a} {things} and gives {b} to {y}. How many {things} does {x} have left?", int.__sub__),
        Wording("There were {a} {things} in the box. {x} took {b}. How many {things} are still there?", int.__sub__),
    ),
    "multiply": (
        Wording("What is {a} times {b}?", int.__mul__),
        Wording("{x} has {a} boxes with {b} {things} in each. How many {things} does {x} have?", int.__mul__),
    ),
}
NAMES = ("Tom", "Anna", "Ben", "Lily", "Max", "Sara")
THINGS = ("apples", "books", "coins", "pens")
_PAIRS = [(a, b) for a in range(2, 10) for b in range(2, 10)]
_HELD_OUT = 13


def tasks(count: int, *, operations: Sequence[str], held_out: bool, seed: int) -> list[dict[str, str]]:
    """``count`` different questions, every operation equally often; ``held_out``: on the pairs kept for evaluation."""
    pairs = random.Random(0).sample(_PAIRS, len(_PAIRS))
    pairs = pairs[:_HELD_OUT] if held_out else pairs[_HELD_OUT:]
    draw = random.Random(f"{seed} {held_out}")
    found: dict[str, dict[str, str]] = {}
    while len(found) < count:
        operation = operations[len(found) % len(operations)]
        wording = draw.choice(WORDINGS[operation])
        a, b = draw.choice(pairs)
        if operation == "subtract":
            a, b = max(a, b), min(a, b)
        x, y = draw.sample(NAMES, 2)
        question = wording.text.format(a=a, b=b, x=x, y=y, things=draw.choice(THINGS))
        answer = wording.answer(a, b)
        found[question] = {
            "question": question,
            "answer": str(answer),
            "domain": operation,
            "worked": f"{a} {SIGNS[operation]} {b} = {answer}",
        }
    return list(found.values())


def main() -> None:
    """Writes OUT/train.jsonl and OUT/eval.jsonl."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder (default: that of this script)")
    parser.add_argument("--operations", nargs="+", choices=sorted(WORDINGS), default=["add"])
    parser.add_argument("--train", type=int, default=1000, help="training tasks")
    parser.add_argument("--eval", type=int, default=300, help="tasks on held-out pairs of numbers")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", options.train), ("eval", options.eval)):
        made = tasks(count, operations=options.operations, held_out=name == "eval", seed=options.seed)
        (options.out / f"{name}.jsonl").write_text("".join(json.dumps(task) + "\n" for task in made), encoding="utf-8")
        print(f"{options.out / name}.jsonl: {count} tasks")


if __name__ == "__main__":
    main()
