"""`rlinf completion`: a script that completes commands, options and file names in a shell."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence

from rlinf.base.arguments import Parser
from rlinf.base.packages import absent

_INSTALL = """  bash:  rlinf completion bash > ~/.local/share/bash-completion/completions/rlinf
  zsh:   rlinf completion zsh > "${fpath[1]}/_rlinf"
  fish:  rlinf completion fish > ~/.config/fish/completions/rlinf.fish"""


def main(arguments: Sequence[str]) -> int:
    """Print the script for a shell. Raises ImportError without the extra `completion`."""
    parser = Parser(
        prog="rlinf completion",
        description="Print a script that completes commands, options and file names. New shells use it after:",
        epilog=_INSTALL,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    shell = parser.parse_args(arguments).shell
    try:
        shtab = importlib.import_module("shtab")
    except ImportError as error:
        raise absent("shtab", "rlinf completion") from error
    from rlinf.cli import build_parser

    print(shtab.complete(_with_files(build_parser(), shtab.FILE), shell=shell))
    return 0


def _with_files(parser: argparse.ArgumentParser, file: object) -> argparse.ArgumentParser:
    """Mark arguments whose value is a file, in all subcommands, with the library's ``file``; return ``parser``."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _with_files(command, file)
        elif action.metavar == "FILE":
            action.complete = file  # type: ignore[attr-defined]
    return parser
