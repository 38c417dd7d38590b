"""``rlinf import``, which the package of importers brings: it is found by its entry point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import metadata

from rlinf.base.errors import UserError

GROUP = "rlinf.import"


def main(arguments: Sequence[str]) -> int:
    """Run the importers' command; return the exit code.

    :raises UserError: the package of importers is not installed.
    """
    for entry in metadata.entry_points(group=GROUP):
        command: Callable[[Sequence[str]], int] = entry.load()
        return command(arguments)
    raise UserError("rlinf import needs the package rlinf_import, which is not installed: install rlinf again")
