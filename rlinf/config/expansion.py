"""How much ``${...}`` may become, and in which order it is resolved so that no value is expanded twice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

MAX_CHARACTERS, MAX_VALUES = 1_000_000, 3_000
"""Of one resolved value. A line of a few bytes can stand for more than memory holds, by naming the one before twice."""
_MAX_EXPRESSION, _MAX_NAMES = 10_000, 100
"""Characters of one expression, and ${ in it: reading it takes time that grows faster than its length."""
_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*")

Path = tuple[str | int, ...]


def too_large(value: object) -> str:
    """Why a resolved value is not taken; empty for one that is."""
    characters = values = 0
    stack = [value]
    while stack:
        each = stack.pop()
        values += 1
        if isinstance(each, Mapping):
            stack += each.values()
        elif isinstance(each, list | tuple):
            stack += each
        elif isinstance(each, str):
            characters += len(each)
        if characters > MAX_CHARACTERS:
            return f"it expands to more than {MAX_CHARACTERS:,} characters"
        if values > MAX_VALUES:
            return f"it expands to more than {MAX_VALUES:,} values"
    return ""


def too_long(expression: str) -> str:
    """Why an expression is not read; empty for one that is."""
    if len(expression) > _MAX_EXPRESSION:
        return f"it has more than {_MAX_EXPRESSION:,} characters"
    return f"it has more than {_MAX_NAMES} ${{...}}" if expression.count("${") > _MAX_NAMES else ""


def dependencies(expressions: Mapping[Path, str]) -> dict[Path, list[Path]]:
    """For each expression, those that it may name: by a whole path, or by one that begins at a section around it."""
    by_prefix: dict[Path, list[Path]] = {}
    for path in expressions:
        for length in range(1, len(path) + 1):
            by_prefix.setdefault(path[:length], []).append(path)
    return {path: list(dict.fromkeys(_named(path, text, by_prefix))) for path, text in expressions.items()}


def _named(path: Path, text: str, by_prefix: Mapping[Path, Sequence[Path]]) -> Iterator[Path]:
    for found in _NAME.findall(text):
        steps: Path = tuple(int(step) if step.isdecimal() else step for step in found.split("."))
        for around in range(len(path)):
            for length in range(1, len(steps) + 1):  # a section that holds expressions, or a value in one of them
                yield from by_prefix.get((*path[:around], *steps[:length]), ())


def in_order(named: Mapping[Path, Sequence[Path]]) -> list[Path]:
    """Every path after those that it names, as far as they do not go round in a circle."""
    done: dict[Path, None] = {}
    entered: set[Path] = set()
    for start in named:
        stack = [(start, iter(named[start]))]
        while stack:
            path, rest = stack[-1]
            entered.add(path)
            following = next((each for each in rest if each not in entered), None)
            if following is not None:
                stack.append((following, iter(named[following])))
                continue
            stack.pop()
            done[path] = None
    return list(done)
