"""Where a path that does not exist leads to instead: the nearest names that do exist."""

from __future__ import annotations

import difflib
from pathlib import Path


def near_path(path: Path) -> str:
    """Return a sentence on what may be meant by ``path``, which does not exist."""
    parent = path.parent
    if not parent.is_dir():
        return f"There is no folder {parent} here; paths start at the folder you run in ({Path.cwd()})."
    try:
        names = {entry.name.lower(): entry.name for entry in sorted(parent.iterdir())}
    except OSError as error:
        return f"{parent} cannot be read: {error.strerror}."
    close = difflib.get_close_matches(path.name.lower(), names, n=1)
    if close:
        return f"Did you mean {parent / names[close[0]]}?"
    return f"Give the path of something in {parent.resolve()}."
