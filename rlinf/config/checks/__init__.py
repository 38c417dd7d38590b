"""Cross-field checks: one small file a topic. Each reads a :class:`Context` and reports what can not work."""

from __future__ import annotations

from rlinf.config.context import Context


def run_checks(context: Context) -> None:
    """Every check, ranges first: what is out of range is not judged again by the others."""
