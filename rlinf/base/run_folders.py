"""Which folder was probably meant where a run directory is wanted, and another path was given."""

from __future__ import annotations

from pathlib import Path

_CONFIG, _MACHINE = "config.yaml", "machine.json"
_SHOWN = 4


def no_run(path: Path) -> str:
    """Explain why a path is no run directory, and name the run directory around it or those in it."""
    try:
        outer = next((folder for folder in list(path.absolute().parents)[:3] if _is_run(folder)), None)
        if not path.exists():
            return f"{path} is no run directory: there is no such folder"
        if outer is not None:
            return f"{path} is no run directory: it is a part of one. Name {_shown(outer)}"
        if path.is_file():
            return f"{path} is no run directory: it is a file"
        inner = [folder for pattern in ("*", "*/*") for folder in sorted(path.glob(pattern)) if _is_run(folder)]
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    if inner:
        more = ", ..." if len(inner) > _SHOWN else ""
        return f"{path} is no run directory, but holds some: name {', '.join(map(str, inner[:_SHOWN]))}{more}"
    return f"{path} is no run directory: it has no {_CONFIG}"


def _is_run(folder: Path) -> bool:
    return (folder / _CONFIG).is_file() and (folder / _MACHINE).is_file()


def _shown(folder: Path) -> Path:
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder
