"""The resources that one program in a sandbox may use up."""

from __future__ import annotations

from dataclasses import dataclass

from rlinf_envs.errors import SettingError


@dataclass(frozen=True)
class Limits:
    """The resources that a program may use up."""

    time_s: float = 5.0
    """Seconds of CPU time of each process; by the clock three times as long."""
    memory_mb: int = 512
    """Address space of each process; kinds of memory that this does not count are refused."""
    processes: int = 8
    """Processes and threads."""
    files_mb: int = 16
    """Of what it writes under /tmp, which is private to it and removed afterwards; one file for each 4 KiB."""
    output_chars: int = 20_000
    """Of what it prints; what comes after that is lost, and ends it."""

    def __post_init__(self) -> None:
        for name in ("time_s", "memory_mb", "processes", "files_mb", "output_chars"):
            if not getattr(self, name) > 0:
                raise SettingError(f"sandbox.{name} must be above 0, got {getattr(self, name)!r}")

    @property
    def files(self) -> int:
        """Files and folders under /tmp: an empty one takes the kernel's memory too."""
        return self.files_mb * 256
