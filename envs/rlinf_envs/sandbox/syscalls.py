"""The system calls that a walled-in program may not make, as a seccomp filter.

The limits of :mod:`resource` count the address space of each process. The kernel has memory that no address space
shows: System V segments, memory files, pages that a pipe refers to, descriptors in flight between sockets. A program
that cannot make those keeps to its limits, and one that cannot make user namespaces mounts no file system.
"""

from __future__ import annotations

import errno
import platform
import struct
from dataclasses import dataclass

from rlinf_envs.errors import SettingError

_LOAD, _AND, _IF_EQUAL, _IF_ABOVE, _IF_ANY, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _MACHINE, _ARGUMENTS = 0, 4, 16
_NEW_USER = 0x10000000
_SHARED_ANONYMOUS = 0x21
_AF_UNIX = 1
_X32 = 0x40000000


@dataclass(frozen=True)
class _Machine:
    """The numbers of one architecture (both are little-endian)."""

    audit: int
    clone: int
    mmap: int
    socket: int
    refused: tuple[int, ...]
    """unshare setns mount · shmget semget msgget mq_open memfd_create · sendmsg sendmmsg · splice tee vmsplice · bpf
    userfaultfd perf_event_open add_key keyctl, then those that all architectures number alike."""


_COMMON = (425, 428, 430, 447)
"""io_uring_setup, open_tree, fsopen, memfd_secret."""
_CLONE3 = 435
_MACHINES = {
    "x86_64": _Machine(
        0xC000003E, 56, 9, 41,
        (272, 308, 165, 29, 64, 68, 240, 319, 46, 307, 275, 276, 278, 321, 323, 298, 248, 250),
    ),
    "aarch64": _Machine(
        0xC00000B7, 220, 222, 198,
        (97, 268, 40, 194, 190, 186, 180, 279, 211, 269, 76, 77, 75, 280, 282, 241, 217, 219),
    ),
}  # fmt: skip


def filter_program() -> bytes:
    """Build the filter for this machine, as an array of the kernel's ``struct sock_filter``.

    Raises:
        SettingError: the numbers of this architecture are not listed here.
    """
    result = _MACHINES.get(platform.machine())
    if result is None:
        raise SettingError(f"the sandbox runs on {' and '.join(_MACHINES)}, and this machine is {platform.machine()}")
    steps = [
        _step(_LOAD, _MACHINE),
        # Code of another architecture (32-bit calls) has other numbers, which nothing here would stop.
        *_only_if(_IF_EQUAL, result.audit, otherwise=_KILL),
        _step(_LOAD, _NUMBER),
    ]
    if platform.machine() == "x86_64":
        steps += [*_if(_IF_ABOVE, _X32, _REFUSE | errno.ENOSYS)]
    for number in (*result.refused, *_COMMON):
        steps += _if(_IF_EQUAL, number, _REFUSE | errno.EPERM)
    # Its flags lie in memory, which a filter cannot read; without it, libc takes clone.
    steps += _if(_IF_EQUAL, _CLONE3, _REFUSE | errno.ENOSYS)
    steps += _of_call(result.clone, 0, _if(_IF_ANY, _NEW_USER, _REFUSE | errno.EPERM))
    # A program could unmap all of such a block but one page, and the kernel would keep the whole.
    shared = [_step(_AND, _SHARED_ANONYMOUS), *_if(_IF_EQUAL, _SHARED_ANONYMOUS, _REFUSE | errno.EPERM)]
    steps += _of_call(result.mmap, 3, shared)
    steps += _of_call(result.socket, 0, _only_if(_IF_EQUAL, _AF_UNIX, otherwise=_REFUSE | errno.EAFNOSUPPORT))
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)


def _if(test: int, value: int, answer: int) -> list[bytes]:
    """Answer if the test holds, and go on otherwise."""
    return [_step(test, value, 0, 1), _step(_RETURN, answer)]


def _only_if(test: int, value: int, *, otherwise: int) -> list[bytes]:
    """Go on if the test holds, and answer otherwise."""
    return [_step(test, value, 1, 0), _step(_RETURN, otherwise)]


def _of_call(number: int, argument: int, test: list[bytes]) -> list[bytes]:
    """Test the lower half of one argument of one call, which is allowed if the test gives no answer."""
    body = [_step(_LOAD, _ARGUMENTS + 8 * argument), *test, _step(_RETURN, _ALLOW)]
    return [_step(_IF_EQUAL, number, 0, len(body)), *body]
