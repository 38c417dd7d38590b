"""Thoughts that a prompt opens for the policy, so that its response begins inside of them."""

from __future__ import annotations

import re

OPENING, CLOSING = "<think>", "</think>"
_OPENED = re.compile(rf"{OPENING}\s*\Z")


def opened_thoughts(prompt: str) -> str:
    """The end of ``prompt`` that opens thoughts; empty where it opens none.

    >>> opened_thoughts("assistant\\n<think>\\n")
    '<think>\\n'
    >>> opened_thoughts("Think between <think> and </think>.")
    ''
    """
    found = _OPENED.search(prompt)
    return found.group() if found else ""
