"""The generated pages: ``python -m rlinf.commands.reference`` writes them, and a test keeps them current.

docs/config.md from the schema, docs/metrics.md from the table of metrics, docs/cli.md from the parsers, docs/api.md
from docstrings. docs/assets/algorithm_pages.py writes those of estimators and losses.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Mapping
from pathlib import Path

from rlinf import cli
from rlinf.commands.api_reference import api_page
from rlinf.config.reference import reference
from rlinf.metrics.table import page as metrics_page

_WIDTH = "110"
_HEAD = """# Commands

Generated from the parsers by `make docs`; every command prints the same with `--help`.

Exit codes: 0 done, 1 the run failed, 2 the configuration or the command is wrong, 130 interrupted, 143 stopped by
SIGTERM, 129 by SIGHUP. `FILE` is the path of a YAML file, or the name of a recipe (`rlinf list recipes`);
`key=value` replaces any key of it ([configuration](config.md)).
"""


def pages() -> Mapping[str, str]:
    """Every generated page by its file name."""
    parts = [_HEAD]
    parts += [f"## rlinf {name}\n\n```text\n{help_of([name])}\n```\n" for name in commands()]
    return {
        "config.md": reference(),
        "metrics.md": metrics_page(),
        "cli.md": "\n".join(parts),
        "api.md": api_page(),
    }


def commands() -> list[str]:
    """Return the names of all commands, in the order of ``rlinf --help``."""
    return [name for group in cli.GROUPS.values() for name in group]


def help_of(words: list[str]) -> str:
    """Return the output of a command's ``--help``, at one width on every terminal."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = _WIDTH
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            cli.main([*words, "--help"])
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
    return printed.getvalue().rstrip()


if __name__ == "__main__":
    for name, text in pages().items():
        Path("docs", name).write_text(text, encoding="utf-8")
