"""Reading the JSON files of a run directory, which a kill or a full disk may have left damaged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf.base.errors import UserError
from rlinf.base.json_text import parse_json


@dataclass(frozen=True)
class _JsonLines:
    """The objects of a JSONL file in their order, and the numbers (from 1) of the lines that hold none."""

    rows: list[dict[str, Any]]
    damaged: list[int]

    def note(self, path: Path) -> str:
        """Describe the skipped lines, in words; empty if none was."""
        if not self.damaged:
            return ""
        shown = ", ".join(map(str, self.damaged[:5])) + (", ..." if len(self.damaged) > 5 else "")
        lines, were = ("line", "was") if len(self.damaged) == 1 else ("lines", "were")
        return f"{path}: {len(self.damaged)} damaged {lines} {were} skipped ({lines} {shown})"


def read_json_lines(path: Path, *, number: str | None = None) -> _JsonLines:
    """Read the objects of ``path``; with ``number`` only those that have a number under that key.

    Empty without the file.

    Raises UserError, which names the file, if it cannot be read (a folder has its name).
    """
    rows, damaged = [], []
    for index, line in enumerate(_content(path).splitlines() if path.exists() else (), start=1):
        if not line.strip():
            continue
        row = _object(line)
        if row is None or (number is not None and not isinstance(row.get(number), int | float)):
            damaged.append(index)
        else:
            rows.append(row)
    return _JsonLines(rows, damaged)


def read_json_file(path: Path) -> dict[str, Any] | None:
    """Read the object in ``path``, None without the file. Raise UserError, which names it, if it is damaged."""
    if not path.exists():
        return None
    result = _object(_content(path))
    if result is None:
        raise UserError(f"{path} is damaged (not a JSON object): restore it from a copy, or remove it")
    return result


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): restore it from a copy, or remove it") from error


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        result = parse_json(text)
    except ValueError:  # half a line, bytes that are no UTF-8, thousands of brackets
        return None
    return result if isinstance(result, dict) else None
