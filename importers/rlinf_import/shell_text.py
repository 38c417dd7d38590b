"""Lines of shell scripts as text: quotation marks, comments, and the commands that a line holds."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator


def outside(text: str) -> Iterator[tuple[int, str, int]]:
    """Index, character and depth of parentheses and braces of what stands outside of quotation marks."""
    quote, depth, escaped = "", 0, False
    for index, character in enumerate(text):
        if escaped:
            escaped = False
        elif character == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if character == quote else quote
        elif character in "'\"`":
            quote = character
        else:
            depth += (character in "({") - (character in ")}")
            yield index, character, depth


def uncommented(line: str) -> str:
    """Return the line up to its comment, if it has one."""
    for index, character, _ in outside(line):
        if character == "#" and (index == 0 or line[index - 1].isspace()):
            return line[:index].rstrip()
    return line


def commands_in(line: str) -> Iterator[str]:
    """Split a logical line into its commands; ``then``, ``do``, ``else`` and the patterns of a ``case`` stand alone."""
    starts = [0]
    for index, character, depth in outside(line):
        if character == ";" and depth <= 0:
            starts += [index, index + 1]
        elif character == ")" and depth < 0 and index + 1 < len(line):
            starts.append(index + 1)
    parts = [line[start:end].strip() for start, end in itertools.pairwise([*starts, len(line)])]
    for number, part in enumerate(parts):
        if part == ";":
            if parts[number - 1 : number] == [""] and number > 1 and parts[number - 2] == ";":
                yield ";;"
            continue
        keyword = re.match(r"(then|do|else)\s+(?=\S)", part)
        if keyword:
            yield keyword.group(1)
            part = part[keyword.end() :]
        if part:
            yield part


def is_open(line: str) -> bool:
    """Return whether a quotation mark of the line is not closed."""
    try:
        shlex.split(line, comments=True)
    except ValueError:
        return True
    return False


def balanced(line: str) -> str:
    """Leave out the last quotation mark that keeps the line open; all of them if that is not enough."""
    parts = [line.rpartition(mark) for mark in ("'", '"')]
    results = (before + after for before, mark, after in parts if mark and not is_open(before + after))
    return next(results, line.replace("'", "").replace('"', ""))


def blanks(text: str) -> list[str]:
    """Split at the blanks that stand outside of quotation marks and parentheses."""
    cuts = [index for index, character, depth in outside(text) if character.isspace() and depth == 0]
    return [
        text[start:end].strip() for start, end in itertools.pairwise([0, *cuts, len(text)]) if text[start:end].strip()
    ]
