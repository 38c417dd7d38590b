"""Warnings about what a later version removes: each names the replacement and that version."""

from __future__ import annotations

import warnings


def deprecate(old: str, replacement: str, *, removed_in: str, stacklevel: int = 2) -> None:
    """Warn that ``old`` still works and that ``replacement`` takes over.

    Args:
        old: the name as users write it.
        replacement: what to write instead.
        removed_in: the first version without ``old``, as `MAJOR.MINOR`.
        stacklevel: frames up to the caller's own line, as for :func:`warnings.warn`; 1 is the line that calls this.
    """
    warnings.warn(
        f"{old} is deprecated and goes in version {removed_in}: use {replacement}",
        DeprecationWarning,
        stacklevel=stacklevel + 1,
    )
