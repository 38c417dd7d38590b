"""From folders to a page on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from rlinf.report.page import render
from rlinf.report.payload import runs_payload
from rlinf.report.runs import ReportError, is_run, read_run


def write_run_report(folder: Path, say: Callable[[str], None] = print) -> Path:
    """`report.html` in a run directory; returns its path."""
    return write_report([folder], say=say)


def write_report(folders: Sequence[Path], out: Path | None = None, say: Callable[[str], None] = print) -> Path:
    """A page about one sweep, or about one or more runs (compared). Raises :class:`ReportError`.

    ``say`` hears of what could not be read.
    """
    if len(folders) == 1 and (folders[0] / "sweep.json").exists():
        from rlinf.report.sweep_page import sweep_payload

        payload = sweep_payload(folders[0])
        title = f"Sweep {payload['name']}"
    else:
        strange = [str(folder) for folder in folders if not is_run(folder)]
        if strange:
            raise ReportError(f"neither a run nor a sweep directory: {', '.join(strange)}")
        records = [read_run(folder) for folder in folders]
        for note in (note for record in records for note in record.notes):
            say(note)
        payload = runs_payload(records)
        title = " · ".join(dict.fromkeys(record.name for record in records))
    path = out or (folders[0] if len(folders) == 1 else Path.cwd()) / "report.html"
    page = render(title, payload)
    writing = path.with_name(f".{path.name}.writing")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writing.write_text(page, encoding="utf-8", errors="replace")
        os.replace(writing, path)
    except OSError as error:
        # Half a page would keep a full disk full.
        writing.unlink(missing_ok=True)
        raise ReportError(f"{path} could not be written: {error.strerror}") from error
    return path
