"""Texts as readers see them: alike but for white space and capitals, and scripts without blanks."""

from __future__ import annotations

UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Japanese and Chinese characters, for a class of a regular expression: no blanks stand between their words."""


def folded(text: str) -> str:
    """Return the same for texts that differ in white space and capitals alone.

    >>> folded("What is\\n 2 + 2?") == folded("WHAT IS 2 + 2?")
    True
    """
    return " ".join(text.split()).casefold()
