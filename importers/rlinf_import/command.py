"""``rlinf import``: a configuration of another framework as a file of ours, and what changes on the way."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rlinf.base.arguments import Parser, positive
from rlinf.base.errors import UserError
from rlinf_import.page import page, report
from rlinf_import.reading import PEERS, imported
from rlinf_import.sb3_tables import DEFAULTS
from rlinf_import.sheet import Options


def main(arguments: Sequence[str]) -> int:
    """Write the file, or print it, and report in addition to it; return the exit code."""
    options = _parser().parse_args(list(arguments))
    requested = Options(options.rows, options.processes, options.env, options.algorithm)
    sheet = imported(options.peer, options.file, options.words, requested)
    if options.output is None:
        print(page(sheet), end="")
        print(report(sheet), file=sys.stderr)
        return 0
    if options.output.is_dir():
        raise UserError(f"{options.output} is a folder: name a file in it")
    if options.output.exists():
        raise UserError(f"{options.output} exists: choose another name")
    try:
        options.output.write_text(page(sheet), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{options.output} cannot be written: {error.strerror}") from error
    print(report(sheet))
    print(f"\nWritten to {options.output}. Next: rlinf check {options.output}")
    return 0


def _parser() -> argparse.ArgumentParser:
    titles = ", ".join(f"{name} ({peer.title})" for name, peer in PEERS.items())
    parser = Parser(
        prog="rlinf import",
        description="Turn another framework's configuration, command or script into a YAML file for `rlinf train`, and "
        "report what differs in meaning, what is ignored and why, and what is left to decide. Nothing of it is run.",
    )
    parser.add_argument("peer", type=_peer, choices=list(PEERS), metavar="FRAMEWORK", help=titles)
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="YAML; also .sh (verl, trl, openrlhf), .py and .ipynb (trl, sb3)"
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="key=value",
        help="further settings of that framework, or shell variables of its .sh",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="YAML", help="the file to write (default: print it)")
    parser.add_argument("--rows", type=positive, metavar="N", help="rows of the training data: lengths given in epochs")
    parser.add_argument("--processes", type=positive, metavar="N", help="processes of the launcher (trl)")
    parser.add_argument("--env", metavar="ID", help="the environment (sb3)")
    parser.add_argument("--algorithm", choices=tuple(DEFAULTS), help="if the file's name does not give it (sb3)")
    return parser


def _peer(text: str) -> str:
    """
    >>> _peer("Stable-Baselines3"), _peer("TRL")
    ('sb3', 'trl')
    """
    name = text.lower()
    return "sb3" if name.replace("_", "-") in ("stable-baselines3", "rl-zoo3") else name
