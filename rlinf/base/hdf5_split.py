"""Splits of HDF5 files of demonstrations: `demos.hdf5#train` is what the file lists in `mask/train`."""

from __future__ import annotations

from pathlib import Path

HDF5_SUFFIXES = (".hdf5", ".h5")


def file_and_split(path: str | Path) -> tuple[Path, str]:
    """Separate the file from the name of a split (robomimic's filter keys), which is empty for all episodes.

    >>> file_and_split("demos.hdf5#train")[1], file_and_split("demos.hdf5")[1]
    ('train', '')
    """
    file, _, split = str(path).rpartition("#")
    return (Path(file), split) if Path(file).suffix in HDF5_SUFFIXES else (Path(path), "")
