"""The run directory: what a run leaves behind, and what it continues from."""

from __future__ import annotations

import errno
import functools
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Self

import rlinf
from rlinf.base.durable import (
    FULL,
    DiskFullError,
    file_of,
    remove_folder,
    remove_leftovers,
    write_atomically,
)
from rlinf.base.errors import UserError
from rlinf.base.json_files import read_json_file
from rlinf.base.packages import DISTRIBUTION
from rlinf.config import Config
from rlinf.config.record import ConfigRecord
from rlinf.config.stored import load_stored
from rlinf.train.checkpoints import Checkpoint, Checkpoints, Survey
from rlinf.train.read_files import data_digests
from rlinf.train.run_lock import NAME as _LOCK
from rlinf.train.run_lock import RunLock

# What may differ when a run goes on: how long, how it is shown, where it runs and when it is saved.
MAY_CHANGE = (
    "run.max_steps",
    "run.resume",
    "run.dir",
    "logging.",
    "cluster.",
    "checkpoint.",
    "evaluation.video",
    "sft.cache",
)
_CONFIG, _MACHINE, _ENVIRONMENT, _SUMMARY = "config.yaml", "machine.json", "environment.json", "summary.json"
_DATA = "data.json"
"""Digests of the rows that the run reads."""
_TOKENIZER, _INIT_FROM = "tokenizer", "init_from.json"
_PREPARED = (_CONFIG, _MACHINE, _ENVIRONMENT, _DATA, _LOCK, _TOKENIZER, _INIT_FROM, "tensorboard")
"""What a run writes before its first numbers."""
_OF_LIBRARIES = ("architecture", "batches", "checkpoints", "policy", "replay", "tensorboard", "tokenizer", "videos")
"""Folders of a run that libraries write into."""
_PACKAGES = ("torch", "transformers", "ray", "gymnasium", "numpy", "vllm", "megatron-core", "reasoning-gym")


class RunDirectoryError(UserError):
    """A directory that this run may not use as it is; the message states why and what to do."""


class RunDirectory:
    """Paths and files of one run. Reading needs no more; the one that writes comes from :meth:`open` and holds a lock.

    With ``only`` it is as if the checkpoint of that step were the only one.
    """

    def __init__(self, path: Path, *, only: int | None = None, lock: RunLock | None = None) -> None:
        self.path = path
        self.checkpoints = Checkpoints(path / "checkpoints", only=only)
        self._lock = lock

    @classmethod
    def open(cls, config: Config) -> RunDirectory:
        """Make and lock the directory, or check that it holds this very configuration; close it, or use ``with``.

        Raises:
            RunLockedError: another process writes there.
            RunDirectoryError: it holds another run, or cannot be written.
        """
        path = Path(config.facts.run_dir)
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = RunLock.take(path)
        except OSError as error:
            raise _unusable(path, error) from error
        directory = cls(path, lock=lock)
        try:
            directory._begin(config)
        except OSError as error:
            directory.close()
            raise _unusable(path, error) from error
        except BaseException:
            directory.close()
            raise
        return directory

    def close(self) -> None:
        """Lets go of the lock."""
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def require_usable(self, config: Config) -> None:
        """Raise RunDirectoryError if a run of ``config`` may not start or go on here. Writes nothing."""
        existing = next(folder for folder in (self.path, *self.path.parents) if os.path.lexists(folder))
        if not existing.is_dir():
            raise _no_folder(existing)
        if not os.access(existing, os.W_OK | os.X_OK):
            reason = OSError(errno.EACCES, os.strerror(errno.EACCES), str(existing))
            raise _unusable(self.path, reason)
        saved = self.path / _CONFIG
        if saved.exists() and config.run.resume == "never":
            raise RunDirectoryError(f"{self.path} holds a run, and run.resume is never: choose another run.dir")
        if saved.exists() and self.summary() is not None and not self.steps():
            raise RunDirectoryError(
                f"{self.path} holds a finished run without its checkpoints: training would begin again and replace its "
                "results. Choose another run.dir, or put the checkpoints back"
            )
        if config.run.resume == "must" and self.latest() is None:
            raise RunDirectoryError(f"{self.path} holds no checkpoint, and run.resume is must")
        if saved.exists() and self._has_begun():
            self._require_the_same(config.record, load_stored(saved).record)
            self._require_the_same_data(config)

    def _has_begun(self) -> bool:
        """Whether the run got beyond its preparation, so that there is something to lose."""
        return any(entry.name not in _PREPARED and not _is_empty(entry) for entry in self.path.iterdir())

    def refusal(self, changed: Sequence[str], overrides: Sequence[str] = ()) -> str:
        """Why a run with these differences does not continue here, and how to continue it.

        ``overrides``: what takes the differences back on the command line, one ``key=value`` each.
        """
        policy = self.path / "policy"
        listed = "\n  ".join(changed)
        added = f" (add to the command: {shlex.join(overrides)})" if overrides else ""
        first = "" if policy.is_dir() else "finish this run, and "
        return (
            f"{self.path} holds a run with another configuration:\n  {listed}\n"
            f"To go on with that run, take these changes back{added}. To use them, choose another run.dir; to build "
            f"on what was learned, add run.init_from={shlex.quote(str(self.path))} to it. For another network "
            f"{first}write policy.path: {policy} instead."
        )

    def _begin(self, config: Config) -> None:
        self.require_usable(config)
        self.checkpoints.sweep_up()
        self._take_back(config.record.text)
        for folder in (
            self.path,
            *(entry for entry in self.path.iterdir() if (entry.is_dir() and not entry.is_symlink())),
        ):
            remove_leftovers(folder)
        write_atomically(self.path / _CONFIG, config.record.text)
        write_atomically(self.path / _MACHINE, json.dumps(machine(), indent=2))
        digests = config.record.environment_digests()
        if digests:
            write_atomically(self.path / _ENVIRONMENT, json.dumps(digests, indent=2))
        compared = self._has_begun() and (self.path / _DATA).exists()
        # Rows may be gigabytes: those of a run that goes on were read for the comparison.
        rows = {} if compared else data_digests(config)
        if rows:
            write_atomically(self.path / _DATA, json.dumps(rows, indent=2))

    def _take_back(self, text: str) -> None:
        """Remove what was prepared for another configuration than ``text``; only a run that has not begun has that."""
        saved = self.path / _CONFIG
        if saved.exists() and not self._has_begun() and saved.read_bytes() != text.encode():
            (self.path / _INIT_FROM).unlink(missing_ok=True)
            if (self.path / _TOKENIZER).is_dir():
                remove_folder(self.path / _TOKENIZER)

    def _require_the_same(self, now: ConfigRecord, before: ConfigRecord) -> None:
        """Raise :class:`RunDirectoryError` that lists what changed since the run began."""
        changed = [line for line in before.changes(now) if not line.startswith(MAY_CHANGE)]
        keys = [line.partition(":")[0] for line in changed]
        overrides = [f"{key}={before.values[key]}" for key in keys if key in before.values]
        digests = read_json_file(self.path / _ENVIRONMENT) or {}
        changed += [
            f"{key}: {now.expressions[key][0]} has another value than it had"
            for key, digest in now.environment_digests(digests).items()
            if not key.startswith(MAY_CHANGE) and digests.get(key, digest) != digest
        ]
        if changed:
            raise RunDirectoryError(self.refusal(changed, overrides))

    def _require_the_same_data(self, config: Config) -> None:
        """Raise :class:`RunDirectoryError` if rows of a file are others than when the run began.

        The order of tasks and every number of the run would be those of neither file.
        """
        before = read_json_file(self.path / _DATA) or {}
        rows = data_digests(config) if before else {}
        changed = [key for key, digest in rows.items() if before.get(key, digest) != digest]
        if changed:
            written = config.record.values
            named = ", ".join(f"{key} ({written[key]})" if key in written else key for key in changed)
            raise RunDirectoryError(
                f"{self.path} holds a run that began with other rows: {named} has changed since. To go on with that "
                "run, put the rows back as they were. To train on the new ones, choose another run.dir; to build on "
                f"what was learned, add run.init_from={shlex.quote(str(self.path))} to it"
            )

    def summary(self) -> dict[str, Any] | None:
        """Read the summary that a finished run wrote. Raises :class:`RunDirectoryError` for a file that is damaged."""
        result = read_json_file(self.path / _SUMMARY)
        if result is not None and not {"steps", "metrics"} <= result.keys():
            raise RunDirectoryError(
                f"{self.path / _SUMMARY} is damaged (it names no steps and metrics): remove it, and give the command "
                "again"
            )
        return result

    def write_summary(self, summary: dict[str, Any]) -> None:
        write_atomically(self.path / _SUMMARY, json.dumps(summary, indent=2))

    def latest(self) -> Checkpoint | None:
        """Return the newest whole checkpoint; None if there is none."""
        return self.checkpoints.survey().newest

    def nothing_whole(self, survey: Survey) -> RunDirectoryError:
        """Return the error for checkpoints that are all damaged."""
        return RunDirectoryError(
            f"no checkpoint in {self.checkpoints.path} is whole ({'; '.join(survey.damaged)}): remove that folder to "
            "start again, or choose another run.dir"
        )

    def steps(self) -> list[int]:
        """List the steps that checkpoints were written after, in order; those of a warm start are negative."""
        return self.checkpoints.steps()

    @property
    def outlook(self) -> str:
        """Describe the next action of the same command, going by the checkpoints."""
        steps = self.steps()
        if not steps:
            return "the same command starts again"
        return f"the same command continues from step {max(steps[-1], 0)}"

    def share_modes(self) -> None:
        """Give the files of libraries the permissions that the run's configuration has: some make theirs private.

        Nothing else is touched: with ``run.dir: .`` the folder holds files of its user too.
        """
        mode = (self.path / _CONFIG).stat().st_mode & 0o777
        for path in (file for name in _OF_LIBRARIES for file in (self.path / name).rglob("*")):
            if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o777 != mode:
                path.chmod(mode)


def _is_empty(entry: Path) -> bool:
    return not any(entry.iterdir()) if entry.is_dir() else entry.stat().st_size == 0


def _no_folder(path: Path) -> RunDirectoryError:
    what = "a file" if path.exists() else f"a link to {os.readlink(path)}, where no folder is"
    return RunDirectoryError(f"run.dir: {path} is {what}: choose another run.dir")


def _unusable(path: Path, error: OSError) -> UserError:
    """Return an error that explains why the directory cannot be written."""
    if error.errno in FULL:
        return DiskFullError(f"{FULL[error.errno]} at {file_of(error) or path}: make room, or choose another run.dir")
    if os.path.lexists(path) and not path.is_dir():
        return _no_folder(path)
    why = error.strerror or str(error)
    return RunDirectoryError(f"run.dir: {file_of(error) or path} cannot be written ({why}): choose another run.dir")


def machine() -> dict[str, Any]:
    """Versions, machine and commit, for reports."""
    # An installed copy is not the repository that it may be inside of.
    package = Path(__file__).parents[1]
    commit = None if _git(package, "ls-files", "__init__.py") is None else _git(package, "rev-parse", "HEAD")
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "versions": _versions(),
        "commit": commit or f"{DISTRIBUTION} {rlinf.__version__}, installed without its repository",
    }


@functools.cache
def _versions() -> dict[str, str]:
    """Return the versions of rlinf and of what it builds on, as far as they are installed."""
    versions = {"rlinf": rlinf.__version__}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
