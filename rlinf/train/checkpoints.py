"""The checkpoints of a run: each is written to a temporary folder, with a checksum for every file.

One is read only if all of them are right."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlinf.base.durable import remove_folder, sync, write_atomically

MANIFEST, STATE = "manifest.json", "state.json"
_NAME = re.compile(r"step_(-?\d+)")
_KEYS = {"step", "stage", "stage_step", "wall_s", "initial", "evaluation", "best"}
"""The keys that the driver's state must have for a run to go on."""
_READERS = 4
"""Files that are read at the same time for their checksums."""


class DamagedError(ValueError):
    """A checkpoint that must not be used; the message states why."""


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint: its folder, and the driver's own state."""

    folder: Path
    state: dict[str, Any]

    @property
    def step(self) -> int:
        return int(self.state["step"])


@dataclass(frozen=True)
class Survey:
    """The newest whole checkpoint, and what is wrong with each one that is newer."""

    newest: Checkpoint | None = None
    damaged: list[str] = field(default_factory=list)


class Checkpoints:
    """Folders ``step_000010`` under ``path``; any other name is not ours and is left alone.

    With ``only`` it is as if the checkpoint of that step were the only one.
    """

    def __init__(self, path: Path, *, only: int | None = None) -> None:
        self.path = path
        self._only = only
        self._verdicts: dict[str, tuple[object, Checkpoint | str]] = {}
        """Folder name -> (what shows that it was not written again, the checkpoint or what is wrong with it)."""

    def steps(self) -> list[int]:
        """List the steps that checkpoints were written after, in order; those of a warm start are negative."""
        return sorted(step for step in map(_step, self.path.glob("step_*")) if step is not None)

    def survey(self) -> Survey:
        """Examine checkpoints from the newest one back to the first that is whole.

        Changes nothing; reads each file once."""
        damaged: list[str] = []
        for step in reversed(self.steps()):
            if self._only not in (None, step):
                continue
            folder = self.path / folder_name(step)
            result = self._examined(folder)
            if isinstance(result, Checkpoint):
                return Survey(result, damaged)
            damaged.append(f"{folder.name}: {result}")
        return Survey(None, damaged)

    def write(self, step: int, state: Mapping[str, Any], fill: Callable[[Path], object]) -> Path:
        """Write a checkpoint from what ``fill`` writes into an empty folder; one that fails leaves nothing behind.

        It is complete, and on the disk, before it gets its name: a crash at any point leaves the one before.
        """
        folder = self.path / f".writing_{folder_name(step)}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            fill(folder)
            write_atomically(folder / STATE, json.dumps({**state, "step": step}))
            write_manifest(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        final = self.path / folder_name(step)
        if final.exists():
            remove_folder(final) if final.is_dir() else final.unlink()
        os.replace(folder, final)
        sync(self.path)
        return final

    def prune(self, keep: int, best: int | None) -> None:
        """Remove all but the newest ``keep`` checkpoints and the best one."""
        for step in self.steps()[: -keep or None]:
            if step != best:
                remove_folder(self.path / folder_name(step))

    def sweep_up(self) -> None:
        """Remove what a crash left half written or half removed. Only for the one that writes here."""
        for leftover in [*self.path.glob(".writing_*"), *self.path.glob(".removing_*")]:
            shutil.rmtree(leftover, ignore_errors=True)

    def _examined(self, folder: Path) -> Checkpoint | str:
        """Return the checkpoint in ``folder``, or what is wrong with it; examined again only if it changed."""
        stamp = _stamp(folder)
        known = self._verdicts.get(folder.name)
        if known is not None and known[0] == stamp:
            return known[1]
        try:
            verdict: Checkpoint | str = examine(folder)
        except DamagedError as error:
            verdict = str(error)
        self._verdicts[folder.name] = (stamp, verdict)
        return verdict


def folder_name(step: int) -> str:
    return f"step_{step:06d}"


def _step(folder: Path) -> int | None:
    """Return the step of a checkpoint's folder; None for anything else that lies there."""
    match = _NAME.fullmatch(folder.name)
    if match is None or not folder.is_dir() or folder_name(int(match[1])) != folder.name:
        return None
    return int(match[1])


def examine(folder: Path) -> Checkpoint:
    """Read the checkpoint in ``folder``, every file of it once. Raises :class:`DamagedError`."""
    known = check_manifest(folder)
    state = _json(folder / STATE)
    if not known:
        # Checkpoints of versions before the manifest have the sizes of files alone.
        sizes = state.pop("files", None)
        if not isinstance(sizes, dict):
            raise DamagedError(f"{MANIFEST} is missing")
        for name, size in sizes.items():
            have = _size(folder / name)
            if have != size:
                raise DamagedError(f"{name} is missing" if have is None else f"{name} is cut short")
    missing = sorted(_KEYS - state.keys())
    if missing:
        raise DamagedError(f"{STATE} lacks {', '.join(missing)}")
    if not isinstance(state["step"], int) or folder_name(state["step"]) != folder.name:
        raise DamagedError(f"{STATE} is of step {state['step']}")
    return Checkpoint(folder, state)


def write_manifest(folder: Path) -> None:
    """Flushes every file of ``folder`` to the disk, and writes its size and its digest into the manifest."""
    write_atomically(folder / MANIFEST, json.dumps({"format": 1, "files": _checksums(folder)}, indent=1))


def check_manifest(folder: Path) -> bool:
    """Return whether there is a manifest. Raises :class:`DamagedError` that names the files that do not match it."""
    if not (folder / MANIFEST).exists():
        return False
    files = _json(folder / MANIFEST).get("files")
    if not isinstance(files, dict) or not files:
        raise DamagedError(f"{MANIFEST} lists no files")
    wrong = _wrong(folder, files)
    if wrong:
        raise DamagedError("; ".join(wrong[:3]) + (f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""))
    return True


def _wrong(folder: Path, files: Mapping[str, Any]) -> list[str]:
    """List the faults of each file that differs from the manifest. Sizes first: they cost nothing."""
    wrong = []
    for name, entry in files.items():
        size = _size(folder / name)
        if size is None:
            wrong.append(f"{name} is missing")
        elif not isinstance(entry, dict) or size != entry.get("bytes"):
            wrong.append(f"{name} is cut short" if isinstance(entry, dict) else f"{MANIFEST} is damaged")
    if wrong:
        return wrong
    with ThreadPoolExecutor(_READERS) as readers:
        digests = readers.map(_readable_digest, [folder / name for name in files])
    return [
        f"{name} {'cannot be read' if digest is None else 'is damaged (its checksum differs)'}"
        for (name, entry), digest in zip(files.items(), digests, strict=True)
        if digest != entry.get("sha256")
    ]


def _checksums(folder: Path) -> dict[str, dict[str, Any]]:
    """Size and digest of every file under ``folder`` but the manifest, each flushed to the disk before it is read."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST)

    def entry(path: Path) -> dict[str, Any]:
        sync(path)
        return {"bytes": path.stat().st_size, "sha256": _digest(path)}

    with ThreadPoolExecutor(_READERS) as readers:
        entries = list(readers.map(entry, files))
    for inner in folder.rglob("*"):
        if inner.is_dir():
            sync(inner)
    return {str(path.relative_to(folder)): result for path, result in zip(files, entries, strict=True)}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _readable_digest(path: Path) -> str | None:
    try:
        return _digest(path)
    except OSError:
        return None


def _size(path: Path) -> int | None:
    """In bytes; None if there is no such file."""
    with suppress(OSError):
        return path.stat().st_size if path.is_file() else None
    return None


def _json(path: Path) -> dict[str, Any]:
    """Read a file that holds one mapping. Raises :class:`DamagedError`."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DamagedError(f"{path.name} cannot be read ({error})") from error
    if not isinstance(value, dict):
        raise DamagedError(f"{path.name} is damaged")
    return value


def _stamp(folder: Path) -> object:
    """Return a value that changes whenever the checkpoint is written again."""
    for name in (MANIFEST, STATE):
        with suppress(OSError):
            result = (folder / name).stat()
            return name, result.st_ino, result.st_mtime_ns, result.st_size
    return None
