"""A finding of `rlinf check`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Caveat:
    """One remark. ``serious``: training would be wrong, or would not start."""

    serious: bool
    message: str
    meaning: str = ""
    """What it means for training, and what to change."""
    subject: str = "environment"

    def __str__(self) -> str:
        head = f"! {self.subject}: {self.message}"
        return f"{head}\n  {self.meaning}" if self.meaning else head
