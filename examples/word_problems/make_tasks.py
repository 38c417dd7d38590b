"""Writes one-step word problems and sums of two digits as JSONL: python examples/word_problems/make_tasks.py

Training and evaluation share no pair of numbers: a fifth of all pairs (a, b) with a and b from 2 to 9 is kept for
evaluation, so that a policy cannot pass by remembering sums that it was rewarded for. ``worked`` is a worked solution,
for supervised training. The same seed writes the same files; those next to this script are what its defaults write.
``--pairs N`` writes preferences too: worked solutions with ones of another result, and with talk without one.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple


class Operation(NamedTuple):
    """How an answer is computed, and its wordings: bare numbers, and stories."""

    sign: str
    answer: Callable[[int, int], int]
    bare: tuple[str, ...]
    stories: tuple[str, ...]


OPERATIONS = {
    "add": Operation(
        "+",
        int.__add__,
        (
            "What is {a} + {b}?",
            "{a} + {b} = ?",
            "Calculate {a} + {b}.",
            "What is the sum of {a} and {b}?",
            "Add {a} and {b}.",
            "How much is {a} plus {b}?",
        ),
        (
            "{x} has {a} {things}. {y} gives {x} {b} more. How many {things} does {x} have now?",
            "There are {a} {things} on the table and {b} {things} in the box. How many {things} are there in total?",
            "{x} buys {a} {things} in the morning and {b} {things} in the evening. How many {things} did {x} buy?",
        ),
    ),
    "subtract": Operation(
        "-",
        int.__sub__,
        ("What is {a} - {b}?", "{a} - {b} = ?", "Calculate {a} - {b}.", "How much is {a} minus {b}?"),
        (
            "{x} has {a} {things} and gives {b} to {y}. How many {things} does {x} have left?",
            "There were {a} {things} in the box. {x} took {b}. How many {things} are still there?",
        ),
    ),
    "multiply": Operation(
        "*",
        int.__mul__,
        ("What is {a} times {b}?", "{a} * {b} = ?", "Calculate {a} * {b}."),
        ("{x} has {a} boxes with {b} {things} in each. How many {things} does {x} have?",),
    ),
}
NAMES = ("Tom", "Anna", "Ben", "Lily", "Max", "Sara")
THINGS = ("apples", "books", "coins", "pens")
_TALK = (
    "To find out, we need to know what the numbers stand for, and then what to do with them.",
    "Let's say that the first number is x and the second number is y. Then we can write an equation.",
    "This is a classic problem, which can be solved by breaking it down into smaller steps.",
)
_PAIRS = [(a, b) for a in range(2, 10) for b in range(2, 10)]
_HELD_OUT = 13


def train_tasks(count: int, operations: Sequence[str], seed: int) -> list[dict[str, str]]:
    """``count`` questions, the operations in turn, half of them stories; bare ones come more than once."""
    draw = random.Random(f"{seed} train")
    return [_task(draw, operations[i % len(operations)], _pairs()[_HELD_OUT:], story=i % 4 > 1) for i in range(count)]


def eval_tasks(count: int, operations: Sequence[str], seed: int) -> list[dict[str, str]]:
    """``count`` different questions on the pairs kept for evaluation, a quarter of them bare."""
    draw = random.Random(f"{seed} eval")
    found: dict[str, dict[str, str]] = {}
    while len(found) < count:
        i = len(found)
        task = _task(draw, operations[i % len(operations)], _pairs()[:_HELD_OUT], story=i % 4 > 0)
        found[task["question"]] = task
    return list(found.values())


def preference_pairs(count: int, operations: Sequence[str], seed: int) -> list[dict[str, str]]:
    """``count`` training questions with a right worked solution (chosen) and, by turns, one that is off by up to 3 and
    one that repeats the question and gets nowhere (rejected)."""
    draw = random.Random(f"{seed} pairs")
    made = []
    for i, task in enumerate(train_tasks(count, operations, seed)):
        left, _, right = task["worked"].rpartition(" ")
        wrong = int(right) + draw.choice((-3, -2, -1, 1, 2, 3))
        rejected = f"{task['question']} {draw.choice(_TALK)}" if i // len(operations) % 2 else f"{left} {wrong}"
        made.append({"prompt": task["question"], "chosen": task["worked"], "rejected": rejected})
    return made


def _pairs() -> list[tuple[int, int]]:
    """All pairs of numbers in an order that is the same for every seed: the first ones are kept for evaluation."""
    return random.Random(0).sample(_PAIRS, len(_PAIRS))


def _task(draw: random.Random, name: str, pairs: Sequence[tuple[int, int]], *, story: bool) -> dict[str, str]:
    operation = OPERATIONS[name]
    a, b = draw.choice(pairs)
    if name == "subtract":
        a, b = max(a, b), min(a, b)
    x, y = draw.sample(NAMES, 2)
    wording = draw.choice(operation.stories if story else operation.bare)
    return {
        "question": wording.format(a=a, b=b, x=x, y=y, things=draw.choice(THINGS)),
        "answer": str(operation.answer(a, b)),
        "domain": f"{name}, {'story' if story else 'bare'}",
        "worked": f"{a} {operation.sign} {b} = {operation.answer(a, b)}",
    }


def main() -> None:
    """Writes OUT/train.jsonl, OUT/eval.jsonl and, with ``--pairs``, OUT/pairs.jsonl."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder (default: that of this script)")
    parser.add_argument("--operations", nargs="+", choices=sorted(OPERATIONS), default=["add"])
    parser.add_argument("--train", type=int, default=1000, help="training tasks")
    parser.add_argument("--eval", type=int, default=300, help="tasks on held-out pairs of numbers")
    parser.add_argument("--pairs", type=int, default=0, help="pairs of a right and a wrong solution, for sft.loss: dpo")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    files = (
        ("train", train_tasks, options.train),
        ("eval", eval_tasks, options.eval),
        ("pairs", preference_pairs, options.pairs),
    )
    for name, make, count in files:
        if not count:
            continue
        made = make(count, options.operations, options.seed)
        (options.out / f"{name}.jsonl").write_text("".join(json.dumps(task) + "\n" for task in made), encoding="utf-8")
        print(f"{options.out / name}.jsonl: {count} {'pairs' if name == 'pairs' else 'tasks'}")


if __name__ == "__main__":
    main()
