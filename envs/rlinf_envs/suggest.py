"""Error messages for mistyped names: what was given, what is near, what exists."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from rlinf_envs.errors import SettingError


def unknown(kind: str, given: str, known: Iterable[str]) -> str:
    """Write a sentence that names the nearest known names, and all of them while they fit on a few lines."""
    names = sorted(known)
    near = difflib.get_close_matches(given, names, n=3, cutoff=0.5)
    message = f"unknown {kind} {given!r}"
    if near:
        message += f"; did you mean {', '.join(repr(name) for name in near)}?"
    if len(names) <= 40:
        message += f" (known: {', '.join(names) or 'none'})"
    return message


def reject_unknown(kind: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise a ValueError that lists every key of ``given`` that is not in ``known``."""
    names = list(known)
    problems = [unknown(kind, key, names) for key in given if key not in names]
    if problems:
        raise SettingError("\n".join(problems))
