"""Stored runs: the directory of one, seen as of one of its checkpoints."""

from __future__ import annotations

from pathlib import Path

from rlinf.base.run_folders import no_run
from rlinf.train.run_dir import RunDirectory, RunDirectoryError


def run_folder(path: Path) -> Path:
    """Return the run directory inside a sweep's trial folder (`SWEEP/trials/NAME`); any other path unchanged."""
    return path / "run" if (path / "trial.json").is_file() else path


def stored_run(path: Path, step: int | None = None) -> RunDirectory:
    """Open the directory of a run that has a whole checkpoint: that of ``step``, or any.

    Raises:
        RunDirectoryError: it is no run directory, or there is no such checkpoint; the message lists those that
            exist.
    """
    path = run_folder(path)
    if not (path / "config.yaml").exists():
        raise RunDirectoryError(no_run(path))
    directory = RunDirectory(path, only=step)
    steps = directory.steps()
    if not steps:
        raise RunDirectoryError(f"{path} has no checkpoint (checkpoint.every sets after how many steps one is written)")
    listed = ", ".join(map(str, steps))
    if step is not None and step not in steps:
        raise RunDirectoryError(f"{path} has no checkpoint of step {step}: there are those of {listed}")
    survey = directory.checkpoints.survey()
    if survey.newest is None:
        damaged = f"the checkpoint of step {step} is" if step is not None else "all checkpoints are"
        raise RunDirectoryError(f"{path}: {damaged} damaged ({'; '.join(survey.damaged)}); there are steps {listed}")
    return directory


def run_of_checkpoint(folder: Path) -> tuple[Path, int | None] | None:
    """(run directory, step) of `RUN/checkpoints/step_000010`, (RUN, None) of a run directory, None of anything else."""
    folder = run_folder(folder)
    if (folder / "config.yaml").exists():
        return folder, None
    run, number = folder.resolve().parent.parent, folder.name.removeprefix("step_")
    if folder.resolve().parent.name != "checkpoints" or not (run / "config.yaml").exists():
        return None
    return (run, int(number)) if number.lstrip("-").isdecimal() else None
