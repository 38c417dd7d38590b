"""The run's name and its directory."""

from __future__ import annotations

from rlinf.config.context import Context
from rlinf.config.facts import run_directory
from rlinf.config.placeholders import PlaceholderError


def check_run(context: Context) -> None:
    """A name is one path component; a directory has only placeholders that can be filled in."""
    name = context.config.run.name
    if name in ("", ".", "..") or not name.isprintable() or any(separator in name for separator in "/\\"):
        message = f"run.name {name!r} cannot be the name of a folder."
        fix = "Take separators and control characters out; run.dir says where the run directory is."
        context.error("run.name", message, fix)
        return
    try:
        run_directory(context.config)
    except PlaceholderError as error:
        context.error("run.dir", f"run.dir: {error}.", "For example: runs/{name}_{seed}.", reads=("run.name",))
