"""From folders to a page on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rlinf.base.durable import write_atomically
from rlinf.base.run_folders import no_run
from rlinf.datasets.robot_data.reading import is_dataset
from rlinf.report.page import render
from rlinf.report.payload import runs_payload
from rlinf.report.runs import ReportError, is_run, read_run


def write_run_report(folder: Path, warn: Callable[[str], None] = print) -> Path:
    """Write `report.html` in a run directory; return its path."""
    return write_report([folder], warn=warn)


def write_report(folders: Sequence[Path], out: Path | None = None, warn: Callable[[str], None] = print) -> Path:
    """Write a page about one sweep, one dataset of episodes, or one or more runs (compared).

    Raises :class:`ReportError`, and DatasetError for a dataset that cannot be read.

    ``warn`` receives what could not be read.
    """
    if len(folders) == 1 and (folders[0] / "sweep.json").exists():
        from rlinf.report.sweep_page import sweep_payload

        payload = sweep_payload(folders[0])
        notes = payload["notes"]
        title = f"Sweep {payload['name']}"
    elif len(folders) == 1 and not is_run(folders[0]) and is_dataset(folders[0]):
        from rlinf.report.recorded import recording_payload

        payload = recording_payload(folders[0])
        notes, title = payload["notes"], f"Episodes of {payload['name']}"
    else:
        strange = [no_run(folder) for folder in folders if not is_run(folder)]
        if strange:
            raise ReportError(f"{'; '.join(strange)} (a sweep directory or a dataset of episodes is read too)")
        records = [read_run(folder) for folder in folders]
        notes = [note for record in records for note in record.notes]
        payload = runs_payload(records)
        title = " · ".join(dict.fromkeys(record.name for record in records))
    for note in notes:
        warn(note)
    if out is None and len(folders) == 1 and folders[0].is_file():
        out = folders[0].with_suffix(".html")
    path = out or (folders[0] if len(folders) == 1 else Path.cwd()) / "report.html"
    # Half of a surrogate pair has no bytes.
    page = render(title, payload).encode("utf-8", "replace").decode("utf-8")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, page)
    except OSError as error:
        fix = "" if out is not None else " (--out names another file)"
        raise ReportError(f"{path} could not be written: {error.strerror}{fix}") from error
    return path
