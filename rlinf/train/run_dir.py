"""The run directory: what a run leaves behind, and what it continues from."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from rlinf.config import Config, diff, load, to_yaml
from rlinf.config.facts import run_directory
from rlinf.errors import UserError
from rlinf.json_files import read_json_file

# What may differ when a run goes on: how long, how it is shown, where it runs and when it is saved.
_MAY_CHANGE = (
    "run.max_steps",
    "run.resume",
    "run.dir",
    "logging.",
    "cluster.",
    "checkpoint.",
    "evaluation.video",
    "sft.cache",
)
_CONFIG, _MACHINE = "config.yaml", "machine.json"
_PACKAGES = ("rlinf", "torch", "transformers", "ray", "gymnasium", "numpy", "vllm", "megatron-core", "reasoning-gym")


class RunDirectoryError(UserError):
    """A directory that this run may not use as it is; the message says why and what to do."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: its folder, and the driver's own state."""

    folder: Path
    state: dict[str, Any]

    @property
    def step(self) -> int:
        return int(self.state["step"])


class RunDirectory:
    """Paths and files of one run. With ``only`` it is as if the checkpoint of that step were the only one."""

    def __init__(self, path: Path, *, only: int | None = None) -> None:
        self.path = path
        self._only = only
        self.checkpoints = path / "checkpoints"
        self.skipped_checkpoints: list[str] = []

    @classmethod
    def open(cls, config: Config) -> RunDirectory:
        """Makes the directory, or checks that it holds this very configuration."""
        directory = cls(Path(run_directory(config)))
        directory.require_usable(config)
        directory.path.mkdir(parents=True, exist_ok=True)
        (directory.path / _CONFIG).write_text(to_yaml(config))
        (directory.path / _MACHINE).write_text(json.dumps(machine(), indent=2))
        return directory

    def require_usable(self, config: Config) -> None:
        """Raises RunDirectoryError where a run of ``config`` may not start or go on here. Writes nothing."""
        saved = self.path / _CONFIG
        if saved.exists() and config.run.resume == "never":
            raise RunDirectoryError(f"{self.path} holds a run, and run.resume is never: choose another run.dir")
        if config.run.resume == "must" and self.latest() is None:
            raise RunDirectoryError(f"{self.path} holds no checkpoint, and run.resume is must")
        if saved.exists() and self.begun():
            changed = [line for line in diff(load(saved), config) if not line.startswith(_MAY_CHANGE)]
            if changed:
                raise RunDirectoryError(self.refusal(changed))

    def refusal(self, changed: Sequence[str]) -> str:
        """Why a run with these differences does not go on here, and how to go on."""
        policy = self.path / "policy"
        listed = "\n  ".join(changed)
        first = "" if policy.is_dir() else "finish this run first, and "
        return (
            f"{self.path} holds a run with another configuration:\n  {listed}\n"
            f"To go on with that run, take these changes back. To use them, choose another run.dir; to build on what "
            f"was learned, {first}write policy.path: {policy} there in place of the keys that describe the network "
            "(the optimiser starts afresh)."
        )

    def begun(self) -> bool:
        """Whether there is anything to lose: a run that did not get beyond its configuration may be corrected."""
        return any(entry.name not in (_CONFIG, _MACHINE) for entry in self.path.iterdir())

    def summary(self) -> dict[str, Any] | None:
        """What a finished run wrote at its end."""
        return read_json_file(self.path / "summary.json")

    def write_summary(self, summary: dict[str, Any]) -> None:
        write_atomically(self.path / "summary.json", json.dumps(summary, indent=2))

    def reserve(self, step: int) -> Path:
        """An empty folder to write a checkpoint into; it counts only after :meth:`commit`."""
        folder = self.checkpoints / f".writing_{step:06d}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def commit(self, folder: Path, state: dict[str, Any]) -> Path:
        """Adds the driver's state and the sizes of all files, then renames the folder into place."""
        sizes = {str(p.relative_to(folder)): p.stat().st_size for p in sorted(folder.rglob("*")) if p.is_file()}
        write_atomically(folder / "state.json", json.dumps({**state, "files": sizes}))
        final = self.checkpoints / f"step_{int(state['step']):06d}"
        shutil.rmtree(final, ignore_errors=True)
        os.replace(folder, final)
        return final

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint whose files are all there; damaged ones are passed over and named."""
        for folder in reversed(self._by_step()):
            try:
                state = json.loads((folder / "state.json").read_text())
                damaged = [n for n, size in state["files"].items() if (folder / n).stat().st_size != size]
            except (OSError, ValueError, KeyError) as error:
                self.skipped_checkpoints.append(f"{folder.name}: {error}")
                continue
            if not damaged:
                return Checkpoint(folder, state)
            self.skipped_checkpoints.append(f"{folder.name}: cut short: {', '.join(damaged)}")
        return None

    def steps(self) -> list[int]:
        """The steps that checkpoints were written after, in order; those of a warm start are negative."""
        return sorted(int(folder.name.removeprefix("step_")) for folder in self.checkpoints.glob("step_*"))

    def _by_step(self) -> list[Path]:
        """Checkpoint folders, oldest first."""
        steps = [step for step in self.steps() if self._only in (None, step)]
        return [self.checkpoints / f"step_{step:06d}" for step in steps]

    def prune(self, keep: int, best: int | None) -> None:
        """Removes all but the newest ``keep`` checkpoints and the best one."""
        for folder in self._by_step()[: -keep or None]:
            if best is None or folder.name != f"step_{best:06d}":
                shutil.rmtree(folder)


def write_atomically(path: Path, text: str) -> None:
    """Writes aside, flushes to disk, renames: a reader sees the old file or the new one."""
    aside = path.with_name(f".{path.name}.writing")
    with aside.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)


def machine() -> dict[str, Any]:
    """Versions, machine and commit, for reports."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "versions": versions,
        "commit": _commit() or f"rlinf {versions.get('rlinf', 'unknown')}, installed without its repository",
    }


def _commit() -> str | None:
    """The commit of the code that runs; None for an installed copy, whatever repository it may lie in."""
    package = Path(__file__).parents[1]
    if _git(package, "ls-files", "__init__.py") is None:
        return None
    return _git(package, "rev-parse", "HEAD")


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
