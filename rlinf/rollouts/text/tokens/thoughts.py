"""Thoughts that a prompt opens for the policy, so that its response begins inside of them."""

from __future__ import annotations

import re

from rlinf.base import thought_marks

OPENING = "<think>"
_OPENED = re.compile(rf"(?:{thought_marks.OPENING})\s*\Z")


def opened_thoughts(prompt: str) -> str:
    """Return the end of ``prompt`` that opens thoughts; empty if it opens none.

    >>> opened_thoughts("assistant\\n<think>\\n")
    '<think>\\n'
    >>> opened_thoughts("Think between <think> and </think>.")
    ''
    """
    result = _OPENED.search(prompt)
    return result.group() if result else ""


def closing_of(opened: str) -> str:
    """Return the mark that closes thoughts which ``opened`` has opened.

    >>> closing_of("<think>\\n"), closing_of("[THINK]"), closing_of("<|begin_of_thought|>")
    ('</think>', '[/THINK]', '<|end_of_thought|>')
    """
    mark = opened.strip()
    return mark.replace("begin", "end") if mark.startswith("<|") else f"{mark[0]}/{mark[1:]}"
