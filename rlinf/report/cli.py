"""`rlinf report RUN`, `rlinf report SWEEP`, `rlinf report DATASET`, `rlinf report RUN1 RUN2 ...`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlinf.base.arguments import Parser
from rlinf.report.write import write_report


def main(arguments: Sequence[str]) -> int:
    """Write the page and print its path. Raises :class:`ReportError` if there is nothing to write about."""
    parser = Parser(prog="rlinf report", description="One HTML file about a run, a sweep, some runs, or a dataset.")
    what = "run directories, one sweep directory, or one dataset of episodes"
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUN", help=what)
    parser.add_argument("--out", type=Path, help="the file to write (default: report.html in the folder)")
    options = parser.parse_args(arguments)
    if options.out is not None and options.out.suffix not in ("", ".html", ".htm"):
        parser.error(f"--out {options.out}: the page is HTML: name a file that ends in .html")
    print(f"Report: {write_report(options.folders, options.out)}")
    return 0
