"""The contents of a folder of runs: which runs and sweeps there are, in what state, and what their pages show."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rlinf.base.errors import UserError
from rlinf.datasets.robot_data.reading import dataset_stamp, is_dataset
from rlinf.report.page import in_utf8
from rlinf.report.payload import headlines, runs_payload
from rlinf.report.runs import ReportError, RunRecord, is_run, read_run
from rlinf.report.sweep_page import sweep_payload
from rlinf.train.run_lock import NAME as LOCK
from rlinf.train.run_lock import SILENCE_S, Holder

_DEPTH = 6
"""Levels of folders below the root that are searched: the runs of a sweep are three below the sweep."""
_TRIALS_DEPTH = 3
_LINE_POINTS = 60
_WATCHED = ("metrics.jsonl", "summary.json", "config.yaml", "samples", "episodes", "evaluations", "videos")


class UnknownRun(ReportError):
    """The name is none of a run or sweep in the library."""


class Library:
    """Runs and sweeps under one folder, by their paths below it (`.` for the folder itself)."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._made: dict[tuple[str, str], tuple[str, Any]] = {}
        """(what, name) -> (state of the files it was made from, what was made)."""
        self._lock = threading.Lock()

    def runs(self) -> dict[str, Path]:
        """Name -> run directory, sorted by name."""
        return self._those(is_run)[0]

    def sweeps(self) -> dict[str, Path]:
        """Name -> sweep directory."""
        return self._those(_is_sweep)[0]

    def recordings(self) -> dict[str, Path]:
        """Name -> folder of recorded episodes."""
        return self._those(is_dataset)[0]

    def index(self) -> dict[str, Any]:
        """``kind: index``: a row for each run, the one that changed last first, each sweep, and each dataset."""
        runs, sweeps, recordings = self._those(is_run, _is_sweep, is_dataset)
        rows = [
            {**self._cached("row", name, path, functools.partial(_row, path)), "id": name, "state": _state_of(path)}
            for name, path in runs.items()
        ]
        return {
            "kind": "index",
            "root": str(self.root),
            "runs": sorted(rows, key=lambda row: row["changed"], reverse=True),
            "sweeps": [{"id": name, "name": path.name} for name, path in sweeps.items()],
            "recordings": [{"id": name, "name": path.name} for name, path in recordings.items()],
        }

    def run_page(self, names: Sequence[str]) -> dict[str, Any]:
        """Build the page about one run, or about several that are compared. Raises :class:`ReportError`."""
        known = self.runs()
        paths = [_found(known, name) for name in names]
        records = [
            self._cached("record", name, path, functools.partial(read_run, path))
            for name, path in zip(names, paths, strict=True)
        ]
        payload = self._cached("page", "\0".join(names), None, lambda: runs_payload(records), self.stamp(names))
        for shown, path in zip(payload["runs"], paths, strict=True):
            shown["status"] = _state_of(path)
        return dict(payload)

    def sweep_page(self, name: str) -> dict[str, Any]:
        """Build the page about a sweep. Raises :class:`ReportError`."""
        path = _found(self.sweeps(), name)
        return dict(self._cached("sweep", name, None, lambda: sweep_payload(path), self.sweep_stamp(name)))

    def recording_page(self, name: str) -> dict[str, Any]:
        """Build the page about recorded episodes. Raises :class:`ReportError`, and DatasetError for damaged data."""
        from rlinf.report.recorded import recording_payload

        path = _found(self.recordings(), name)
        make = functools.partial(recording_payload, path)
        return dict(self._cached("recording", name, None, make, self.recording_stamp(name)))

    def recording_stamp(self, name: str) -> str:
        """Return a stamp that changes whenever the dataset does."""
        return dataset_stamp(_found(self.recordings(), name))

    def stamp(self, names: Sequence[str]) -> str:
        """Return a stamp that changes whenever the page about these runs would."""
        known = self.runs()
        return "|".join(f"{_stamp(_found(known, name))}{_state_of(known[name])}" for name in names)

    def sweep_stamp(self, name: str) -> str:
        """Return a stamp that changes whenever a trial of the sweep logs."""
        path = _found(self.sweeps(), name)
        return "|".join(_stamp(one) for one in [path, *self._walk(path, _TRIALS_DEPTH)])

    def _cached(
        self, what: str, name: str, path: Path | None, make: Callable[[], Any], stamp: str | None = None
    ) -> Any:
        """Return the result of ``make``, made again only when the files have changed."""
        now = _stamp(path) if stamp is None and path is not None else str(stamp)
        with self._lock:
            known = self._made.get((what, name))
            if known is None or known[0] != now:
                self._made[what, name] = known = (now, make())
            return known[1]

    def _those(self, *kinds: Callable[[Path], bool]) -> list[dict[str, Path]]:
        """Return for each kind: name -> folder that it holds of, sorted. Bytes that are no UTF-8 are escaped."""
        folders = sorted(self._walk(self.root, _DEPTH))
        by_name = {in_utf8(path.relative_to(self.root).as_posix()): path for path in folders}
        return [{name: path for name, path in by_name.items() if is_one(path)} for is_one in kinds]

    def _walk(self, folder: Path, depth: int) -> Iterator[Path]:
        if not os.access(folder, os.R_OK | os.X_OK):
            return
        yield folder
        if depth == 0 or (is_run(folder) and folder != self.root):
            return
        try:
            inner = [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return
        for path in inner:
            if not path.name.startswith(".") and path.name not in ("checkpoints", "policy", "tokenizer", "publish"):
                yield from self._walk(path, depth - 1)


def _is_sweep(path: Path) -> bool:
    return (path / "sweep.json").exists()


def _state_of(run: Path) -> str:
    """Return `running`, `finished` or `stopped`: by its summary, and by whether a process holds its lock."""
    lock = run / LOCK
    try:
        # Either way: after a clock was set back, the last beat of a dead process lies in the future.
        held = Holder.read(lock) is not None and abs(time.time() - lock.stat().st_mtime) < SILENCE_S
    except OSError:
        held = False
    if held:
        return "running"
    return "finished" if (run / "summary.json").exists() else "stopped"


def _found(known: dict[str, Path], name: str) -> Path:
    if name not in known:
        raise UnknownRun(f"there is no {name} here")
    return known[name]


def _stamp(run: Path) -> str:
    results = []
    for name in _WATCHED:
        try:
            stat = (run / name).stat()
        except OSError:
            continue
        results.append(f"{name}{stat.st_mtime_ns}{stat.st_size}")
    return ",".join(results)


def _row(path: Path) -> dict[str, Any]:
    """Build a run's row in the list."""
    changed = max((_changed(path / name) for name in _WATCHED), default=0.0)
    empty: dict[str, Any] = {
        "name": path.name,
        "step": None,
        "metric": None,
        "value": None,
        "line": [],
        "health": [],
        "changed": int(changed),  # pages round other numbers to seven digits
    }
    try:
        return {**empty, **_summary(read_run(path))}
    except UserError as error:
        return {**empty, "note": str(error)}
    except Exception as error:  # valid files of another shape: one run must not take the others' list with it
        return {**empty, "note": f"{path} can't be shown ({type(error).__name__}: {error}): a file in it is damaged"}


def _changed(path: Path) -> float:
    """When a file changed last; 0 without it."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _summary(run: RunRecord) -> dict[str, Any]:
    """Fill the columns of a run's row in the list from its files."""
    metric = next(iter(headlines(run)), None)
    values = run.values(metric) if metric else []
    from rlinf.report.health import examine

    return {
        "name": run.name,
        "step": max(run.steps, default=None),
        "of": run.setting("run.max_steps"),
        "metric": metric,
        "value": values[-1] if values else None,
        "line": values[:: max(1, len(values) // _LINE_POINTS)],
        "health": [finding.title for finding in examine(run) if finding.level == "bad"],
        "note": "",
    }
