"""How a process is walled in: bubblewrap if it is installed, otherwise ``unshare`` of util-linux.

Both give it namespaces of its own (process ids, network, mounts, IPC), no privileges, and no environment
variables. Its file system holds the interpreter and the system's libraries read-only, and an empty ``/tmp``
in memory.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["bwrap", "unshare"]
KINDS: tuple[Kind, ...] = ("bwrap", "unshare")

_DEVICES = ("null", "urandom")
_FIRST_UID, _UIDS = 200_000, 50_000
_count = itertools.count(os.getpid() * 64)

# $1 mount point of the new root, $2 size of /tmp in bytes, $3 options of setpriv, $4 devices; then folders, "--", links
# (name and target), "--", the command. Everything that is run after the change of root is brought along by name.
_SCRIPT = """
set -e
root=$1 size=$2 privileges=$3 devices=$4
shift 4
mount -t tmpfs -o mode=755,nosuid,nodev,size=1m tmpfs "$root"
while [ "$1" != -- ]; do
  mkdir -p "$root$1"
  mount --bind "$1" "$root$1"
  mount -o remount,bind,ro,nosuid,nodev "$root$1"
  shift
done
shift
while [ "$1" != -- ]; do
  ln -s "$2" "$root$1"
  shift 2
done
shift
mkdir -p "$root/tmp" "$root/dev" "$root/bin" "$root/old"
mount -t tmpfs -o "mode=1777,nosuid,nodev,size=$size" tmpfs "$root/tmp"
for device in $devices; do
  : > "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
for program in chroot setpriv; do
  : > "$root/bin/$program"
  mount --bind "$(command -v $program)" "$root/bin/$program"
done
cd "$root"
pivot_root . old
cd /tmp
# umount reads /proc, which only the old root has: it takes away the ground that it stands on.
/bin/chroot /old umount -l /
# Not exec: as the first process of its namespace the program would not get SIGXCPU.
/bin/setpriv $privileges --no-new-privs --inh-caps=-all --bounding-set=-all "$@"
exit $?
"""


@dataclass(frozen=True)
class Visible:
    """The part of the file system that a walled-in interpreter sees, read-only."""

    folders: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    """Name and target of symbolic links at the root."""
    python: str


@functools.cache
def visible() -> Visible:
    """Return the interpreter that runs this, without its packages, and the libraries that it is linked with."""
    prefix = Path(sys.base_prefix).resolve()
    requested = [prefix / "bin", prefix / "lib", Path("/usr/lib"), Path("/usr/lib64"), Path("/lib"), Path("/lib64")]
    links = tuple((str(path), os.readlink(path)) for path in requested if path.is_symlink())
    folders = tuple(dict.fromkeys(str(path) for path in requested if path.is_dir() and not path.is_symlink()))
    return Visible(folders, links, str(Path(sys.executable).resolve()))


def installed(kind: Kind) -> bool:
    """Whether the programs are there; whether the kernel lets them work is found by trying."""
    needed = {"bwrap": ("bwrap",), "unshare": ("unshare", "setpriv", "pivot_root", "mount")}[kind]
    return all(shutil.which(name, path=_PATH) for name in needed)


def is_root() -> bool:
    """Whether this process has the system's own root user, to whom limits on processes do not apply."""
    return os.getuid() == 0 and _identity_map()


def fresh_uid() -> int:
    """Return a user that owns nothing, for one call: limits on processes are counted for each user."""
    return _FIRST_UID + next(_count) % _UIDS


def command(kind: Kind, program: Sequence[str], *, files_bytes: int, uid: int | None) -> list[str]:
    """Wrap ``program`` in walls; ``uid``: the user that runs it, if this process may choose (see :func:`is_root`).

    With bubblewrap the program itself has to become that user: it alone keeps the right to do so.
    """
    seen = visible()
    if kind == "bwrap":
        users = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if uid is not None else ["--unshare-user"]
        # A user without rights has to get through the folders above the interpreter.
        above = dict.fromkeys(str(p) for f in seen.folders for p in reversed(Path(f).parents[:-1]))
        mounts = [part for folder in above for part in ("--perms", "0755", "--dir", folder)]
        mounts += [part for folder in seen.folders for part in ("--ro-bind", folder, folder)]
        mounts += [part for name, target in seen.links for part in ("--symlink", target, name)]
        # Not `--dev`: its /dev/shm has no limit, and /dev/zero gives shared memory that none counts.
        devices = ["--perms", "0755", "--dir", "/dev"]
        devices += [part for name in _DEVICES for part in ("--dev-bind", f"/dev/{name}", f"/dev/{name}")]
        return [
            _found("bwrap"), *users, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
            "--die-with-parent", "--new-session", "--clearenv",
            "--perms", "1777", "--size", str(files_bytes), "--tmpfs", "/tmp", *mounts, *devices,
            "--remount-ro", "/", "--chdir", "/tmp", "--", *program,
        ]  # fmt: skip
    users = ["--user", "--map-root-user"] if uid is None else []
    privileges = "" if uid is None else f"--reuid={uid} --regid={uid} --clear-groups"
    links = [part for link in seen.links for part in link]
    # unshare ends its child with itself, and setpriv has the kernel end unshare with the thread that waits for it.
    return [
        _found("setpriv"), "--pdeathsig", "KILL", _found("unshare"), *users, "--mount", "--pid",
        "--fork", "--kill-child", "--net", "--ipc", "--uts",
        "sh", "-c", _SCRIPT, "sandbox", _mount_point(seen), str(files_bytes), privileges, " ".join(_DEVICES),
        *seen.folders, "--", *links, "--", *program,
    ]  # fmt: skip


_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin", "/usr/bin", "/bin"))
VARIABLES = {"PATH": _PATH}
"""Environment of the programs that build the walls; what is inside of them sees none of it."""


def _found(name: str) -> str:
    return shutil.which(name, path=_PATH) or name


def _mount_point(seen: Visible) -> str:
    """Find a folder to build the new root on: nothing that is needed lies in it."""
    for point in ("/mnt", "/srv", "/media", "/opt", "/tmp"):
        if Path(point).is_dir() and not any(folder.startswith(f"{point}/") for folder in seen.folders):
            return point
    return "/tmp"


def _identity_map() -> bool:
    """Whether user 0 here is user 0 of the machine."""
    try:
        first, outside, _ = Path("/proc/self/uid_map").read_text().split()[:3]
    except (OSError, ValueError):
        return False
    return (first, outside) == ("0", "0")
