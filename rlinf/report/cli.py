"""`rlinf report RUN`, `rlinf report SWEEP`, `rlinf report RUN1 RUN2 ...`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rlinf.report.runs import ReportError
from rlinf.report.write import write_report


def main(arguments: Sequence[str]) -> int:
    """Writes the page and says where it is."""
    parser = argparse.ArgumentParser(
        prog="rlinf report", description="One HTML file about a run, a sweep or some runs."
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUN", help="run directories, or one sweep directory")
    parser.add_argument("--out", type=Path, help="the file to write (default: report.html in the folder)")
    options = parser.parse_args(arguments)
    try:
        path = write_report(options.folders, options.out)
    except ReportError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"Report: {path}")
    return 0
