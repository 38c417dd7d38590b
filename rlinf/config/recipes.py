"""The recipes that come with the package, by name: ``rlinf train quickstart`` works in any folder.

They are the files of the repository's ``config/``; ``rlinf/recipes`` is a link to it there, and a folder of
the package where rlinf is installed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import rlinf

FOLDER = Path(rlinf.__file__).parent / "recipes"
_SWEEPS = "sweeps"
_SUFFIXES = (".yaml", ".yml")


@functools.cache
def recipes() -> Mapping[str, Path]:
    """Every recipe of a single run, by ``folder/name``: ``math/quickstart``, ``sim/cartpole_ppo``."""
    return {name: path for name, path in _packaged().items() if not name.startswith(f"{_SWEEPS}/")}


@functools.cache
def sweep_recipes() -> Mapping[str, Path]:
    """Every recipe of a sweep, by ``sweeps/name``."""
    return {name: path for name, path in _packaged().items() if name.startswith(f"{_SWEEPS}/")}


def named(name: str, known: Mapping[str, Path]) -> list[str]:
    """List the recipes of a name, with or without its folder."""
    return [name] if name in known else [key for key in known if key.rpartition("/")[2] == name]


def packaged(name: str | Path, known: Mapping[str, Path] | None = None) -> Path | None:
    """Find the one recipe of a name; None for a path, and if there is none or more than one of that name.

    A file of that very name in the current folder is meant first.
    """
    text = str(name)
    if Path(text).exists() or text.endswith(_SUFFIXES):
        return None
    table = recipes() if known is None else known
    result = named(text, table)
    return table[result[0]] if len(result) == 1 else None


def located(name: str | Path, known: Mapping[str, Path] | None = None) -> Path:
    """Resolve a recipe name or a path; `~` is the home folder, as everywhere in a file."""
    return packaged(name, known) or Path(name).expanduser()


@functools.cache
def _packaged() -> Mapping[str, Path]:
    result = sorted(FOLDER.rglob("*.yaml")) if FOLDER.is_dir() else []
    return {path.relative_to(FOLDER).with_suffix("").as_posix(): path for path in result}
