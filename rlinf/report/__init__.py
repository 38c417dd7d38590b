"""Pages about runs and sweeps: one HTML file each, with everything inside it. Light: imports no torch by itself."""

from rlinf.report.write import write_report, write_run_report

__all__ = ["write_report", "write_run_report"]
