"""What can happen to a file between two sessions of a run."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def zero(path: Path) -> None:
    """As after a power loss: the size is right, and nothing was written."""
    path.write_bytes(bytes(path.stat().st_size))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for position in range(len(content) // 2, min(len(content) // 2 + 64, len(content))):
        content[position] ^= 0x55
    path.write_bytes(content)


def delete(path: Path) -> None:
    path.unlink()


def scramble(path: Path) -> None:
    """Random bytes, as many as before."""
    path.write_bytes(random.Random(0).randbytes(path.stat().st_size))


def turn_into_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: dict[str, Callable[[Path], None]] = {
    one.__name__: one for one in (truncate, zero, flip, delete, scramble, turn_into_folder)
}


def copied(source: Path, target: Path) -> Path:
    """A copy of a run directory to damage."""
    shutil.copytree(source, target)
    return target
