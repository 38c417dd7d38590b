"""Problems of a configuration, in the user's words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlinf.base.redaction import redacted

COMMAND_LINE = "command line"


@dataclass(frozen=True)
class Origin:
    """Where a value was written."""

    file: str
    line: int | None = None
    layer: int = 0
    """Layers are laid over one another (base files, the file, the command line); the higher one wins."""

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True)
class ConfigProblem:
    """One mistake: where it is, what it is, and what to write instead."""

    file: str
    line: int | None
    key: str
    message: str
    fix: str = ""
    unread: bool = False
    """Whether the value is sound, and nothing of this run reads it."""

    def __str__(self) -> str:
        location = Origin(self.file, self.line)
        return f"{location}: {self.message} {self.fix}".rstrip()


class ConfigErrors(Exception):
    """Every mistake of a configuration at once, sorted by position."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        self.problems = sorted(problems, key=lambda problem: (problem.file, problem.line or 0, problem.key))
        super().__init__("\n".join(str(problem) for problem in self.problems))


def problem(origin: Origin, key: str, message: str, fix: str = "", *, unread: bool = False) -> ConfigProblem:
    """Build a problem at ``origin``."""
    return ConfigProblem(origin.file, origin.line, key, redacted(message), redacted(fix), unread)
