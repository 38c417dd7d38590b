"""Where a path that does not exist leads to instead: the nearest names that do exist."""

from __future__ import annotations

import difflib
import re
from pathlib import Path


def near_path(path: Path) -> str:
    """Return a sentence on what may be meant by ``path``, which does not exist."""
    parent, text = path.parent, str(path)
    hub = re.match(r"(?:https?:/+(?:www\.)?huggingface\.co/+|hf:/+)(?:datasets/|models/)?([\w.-]+/[\w.-]+)", text)
    if hub is not None:
        return f"Write {hub.group(1)} for what the hub has under that name."
    if path.is_symlink():
        return f"It is a link to {path.readlink()}, which does not exist."
    if text.startswith("file:/"):
        return f"Write /{text.removeprefix('file:').lstrip('/')}: the path alone."
    if re.match(r"[a-z0-9+]+:/", text):
        return "It is an address: download the file, or write a data set of the hub as OWNER/NAME."
    if "$" in text:
        return "Environment variables are written as ${oc.env:NAME}."
    if "*" in text:
        return "A pattern is not expanded: name the folder, whose files are read together."
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
