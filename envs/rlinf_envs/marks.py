"""Literal text that a response needs to earn its reward: what a prompt should request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MARKS: Mapping[str, str] = {"boxed": "\\boxed", "tag": "<answer>", "think": "<think>", "####": "####"}
"""Named format -> what makes it recognisable."""


def format_marks(reward: Mapping[str, Any] | None, default_format: str) -> tuple[str, ...]:
    """Return the mark of the named format that a ``reward`` pays for; none if it pays for none, or for a pattern.

    >>> format_marks({"correctness": 1.0, "format": 0.1}, "boxed")
    ('\\\\boxed',)
    >>> format_marks({"correctness": 1.0}, "boxed")
    ()
    """
    term = (reward or {}).get("format", 0)
    options = term if isinstance(term, Mapping) else {"weight": term}
    weight, name = options.get("weight"), options.get("pattern", default_format)
    return (MARKS[name],) if weight and name in MARKS else ()
