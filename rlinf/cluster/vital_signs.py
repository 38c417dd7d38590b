"""Whether a process that does not answer still lives, and does something."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_STATE, _PARENT, _USER_TICKS, _SYSTEM_TICKS = 0, 1, 11, 12  # fields of /proc/PID/stat after the name in parentheses
_ENDED = ("Z", "X")
_WAITS_FOR_DISK = "D"


@dataclass(frozen=True)
class VitalSigns:
    """Vital signs of a process, as the kernel has them; ``ticks`` of processor time so far, of all its threads."""

    state: str
    parent: int
    ticks: int

    @classmethod
    def of(cls, pid: int) -> VitalSigns | None:
        """None if there is no such process, or no way to find out."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return cls(fields[_STATE], int(fields[_PARENT]), int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS]))

    def advanced(self, before: VitalSigns | None) -> bool:
        """Whether the process did anything since; one that waits for a disk did."""
        return before is None or self.ticks != before.ticks or self.state == _WAITS_FOR_DISK


def is_alive(pid: int) -> bool:
    """Return whether the process exists and has not ended; True if this system cannot report it."""
    if not os.path.isdir("/proc/self"):
        return True
    signs = VitalSigns.of(pid)
    return signs is not None and signs.state not in _ENDED
