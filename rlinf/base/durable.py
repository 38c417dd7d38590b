"""Files that survive a crash: written aside, flushed to the disk, renamed; what a full disk is called."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rlinf.base.errors import RunFailed, UserError

FULL = {errno.ENOSPC: "disk full", errno.EDQUOT: "disk quota used up"}
"""The meaning of the error numbers of a full disk."""
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
_SILENT_S = 600.0
_PROBE_BYTES = 2**20


class DiskFullError(RunFailed):
    """No room is left in the folder that the run writes to; the message names that folder."""


def write_atomically(path: Path, text: str) -> None:
    """Write to a temporary file, flush to disk, rename: a reader sees the old file or the new one, never a part."""

    def write(aside: Path) -> None:
        with aside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            _flush(file.fileno(), path)

    replace_whole(path, write)


def _flush(handle: int, path: Path) -> None:
    """Flushes to the disk. The error names ``path``, which the system's own does not."""
    try:
        os.fsync(handle)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def replace_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Has ``write`` make a file aside, then renames it to ``path``; a failure leaves no part file behind."""
    aside = _aside(path)
    try:
        write(aside)
        os.replace(aside, path)
    except BaseException:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise
    sync(path.parent)


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.writing")


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes have left half written in ``folder``; what a living one writes there stays.

    A process of another machine counts as dead when it has not written for :data:`_SILENT_S`, by the file system's own
    clock: that of this machine may differ, or jump.
    """
    for path in folder.glob(".*.writing"):
        host, _, pid = path.name.removesuffix(".writing").rpartition(".")
        with suppress(OSError):
            if host.endswith(f".{socket.gethostname()}") and pid.isdecimal():
                dead = int(pid) != os.getpid() and not Path(f"/proc/{pid}").exists()
            else:
                with tempfile.TemporaryFile(dir=folder) as new:
                    dead = os.fstat(new.fileno()).st_mtime - path.lstat().st_mtime > _SILENT_S
            if dead and path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif dead:
                path.unlink()


def sync(path: Path) -> None:
    """Flushes a file, or the entries of a folder, to the disk. File systems without the call are left alone."""
    handle = os.open(path, os.O_RDONLY)
    try:
        _flush(handle, path)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS):
            raise
    finally:
        os.close(handle)


@contextmanager
def first_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder name, then rename the folder to ``path``; of several processes the first one stays.

    The temporary name is this process's own, on this machine and on any other.
    """
    aside = _aside(path)
    remove_leftovers(path.parent)
    shutil.rmtree(aside, ignore_errors=True)
    try:
        yield aside
        os.rename(aside, path)
    except OSError:
        if not path.is_dir():
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder, renamed to ``path`` (new or empty) after the block; an error leaves nothing of it.

    A full disk raises :class:`DiskFullError`, though libraries have errors of their own for it.
    """
    path = Path(os.path.abspath(path))
    aside = _aside(path)
    shutil.rmtree(aside, ignore_errors=True)
    try:
        yield aside
        try:
            os.replace(aside, path)
        except OSError:  # a mount point, or a folder on another disk
            shutil.copytree(aside, path, dirs_exist_ok=True)
    except UserError:
        raise
    except Exception as error:
        problem = _no_room(error, aside if aside.is_dir() else path.parent)
        if problem is None:
            raise
        raise DiskFullError(f"{problem} at {path}: nothing was written there. Make room, then try again") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Remove a folder under another name, so that a crash on the way leaves nothing that resembles the folder."""
    leaving = folder.with_name(f".removing_{folder.name}.{os.getpid()}")
    shutil.rmtree(leaving, ignore_errors=True)
    os.replace(folder, leaving)
    shutil.rmtree(leaving, ignore_errors=True)


@contextmanager
def naming_disk_errors(folder: Path) -> Iterator[None]:
    """Turn what the disk under ``folder`` did not do into one sentence: :class:`DiskFullError`, or RunFailed.

    Libraries hide that a disk is full: torch reports an unexpected position in its archive, a worker's error is
    text. So after any failure a probe tests the disk itself.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        location = file_of(error) if isinstance(error, OSError) else None
        problem = _no_room(error, folder)
        if problem is not None:
            raise DiskFullError(
                f"{problem} at {location or folder}: the run stopped, and its checkpoints are whole: make room, then "
                "give the same command to go on"
            ) from error
        if isinstance(error, OSError) and location is not None and Path(location).is_relative_to(folder):
            raise RunFailed(f"{location}: {error.strerror}") from error
        raise


@contextmanager
def unless_read_only(folder: Path, report: Callable[[str], None]) -> Iterator[None]:
    """Leave out what cannot be written to a folder that this process may only read, and report it."""
    try:
        yield
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise
        report(f"{file_of(error) or folder} could not be written ({error.strerror}): the result is not saved")


def file_of(error: OSError) -> str | None:
    """Return the file that an error is about; of a rename, the name that it should have got."""
    name = error.filename2 or error.filename
    return str(name) if name else None


def _no_room(error: Exception, folder: Path) -> str | None:
    """Return why nothing more fits under ``folder``, if that explains the error; None if there is room."""
    return (FULL.get(error.errno or 0) if isinstance(error, OSError) else None) or full(folder)


def full(folder: Path) -> str | None:
    """Return why ``folder`` cannot take another MiB, in words; None if there is room."""
    probe = folder / f".probe.{os.getpid()}"
    try:
        with probe.open("wb") as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return FULL.get(error.errno or 0)
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    return None
