"""The files that a configuration names and a run reads: what identifies their contents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from rlinf.base.row_files import is_row_file
from rlinf.config import Config

_SAVED = ".arrow"
"""Of folders that the ``datasets`` library saved."""


def data_digests(config: Config) -> dict[str, str]:
    """Key -> SHA-256 of the rows of tasks and conversations that it names; none for names on the hub.

    What cannot be read is left out: its reader names it.
    """
    results = {}
    for key, path in _data(config).items():
        with suppress(OSError):
            if path.exists():
                results[key] = _sha256(path)
    return results


def warm_start_states(config: Config) -> dict[str, list[tuple[str, int, int]]]:
    """Key -> name, bytes and time of change (ns) of each file that a warm start may read under it.

    Much faster than a digest of a model's weights, and a copy counts as another file.
    """
    models = {"policy.path": config.policy.path, "policy.tokenizer.path": config.policy.tokenizer.path}
    named = {**_data(config), **_paths(models), **_paths({"sft.dataset": config.sft.dataset})}
    return {key: [*_states(path)] for key, path in named.items() if path.exists()}


def _data(config: Config) -> dict[str, Path]:
    """Return the files and folders of rows; simulators have none."""
    if config.facts.run_kind == "simulator":
        return {}
    named = {
        "sft.data": config.sft.data,
        "sft.eval_data": config.sft.eval_data,
        "env.kwargs.path": config.env.kwargs.get("path"),
        "evaluation.env_kwargs.path": (config.evaluation.env_kwargs or {}).get("path"),
        **{f"env.tasks.{number}.kwargs.path": task.kwargs.get("path") for number, task in enumerate(config.env.tasks)},
    }
    return _paths(named)


def _paths(named: Mapping[str, object]) -> dict[str, Path]:
    return {key: Path(path).expanduser() for key, path in named.items() if isinstance(path, str | Path)}


def _sha256(path: Path) -> str:
    """Compute a digest of a file, or of the rows' files in a folder with their names."""
    result = hashlib.sha256()
    for name, file in _inside(path):
        if path.is_file() or is_row_file(file) or file.suffix == _SAVED:
            result.update(f"{name}\0".encode(errors="surrogateescape"))
            with file.open("rb") as opened:
                result.update(hashlib.file_digest(opened, "sha256").digest())
    return result.hexdigest()


def _states(path: Path) -> Iterator[tuple[str, int, int]]:
    for name, file in _inside(path):
        state = file.stat()
        yield name, state.st_size, state.st_mtime_ns


def _inside(path: Path) -> list[tuple[str, Path]]:
    """Return the files of a folder with their names in it, in order; a file alone has no name."""
    if path.is_file():
        return [("", path)]
    return [(str(file.relative_to(path)), file) for file in sorted(path.rglob("*")) if file.is_file()]
