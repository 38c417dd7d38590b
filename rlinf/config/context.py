"""What a cross-field check sees: the typed configuration, and where each key was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rlinf.config.problems import ConfigProblem, Origin, problem
from rlinf.config.schema import Config


@dataclass
class Context:
    """Checks read ``config`` and call :meth:`error`."""

    config: Config
    places: Mapping[str, Origin]
    """The dotted keys that were written, with their places."""
    source: Origin
    """The file as a whole, cited for keys that nobody wrote."""
    broken: set[str]
    """Keys that already have a problem: nothing that reads them is judged."""
    problems: list[ConfigProblem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def error(self, key: str, message: str, fix: str, *, reads: tuple[str, ...] = ()) -> None:
        """Report ``key``, unless it or another key the check ``reads`` is broken itself."""
        if not self.broken.intersection((key, *reads)):
            self.problems.append(problem(self.place(key, *reads), key, message, fix))

    def place(self, *keys: str) -> Origin:
        """The line of the first of these keys that was written, else of the nearest section around the first."""
        for key in keys:
            if key in self.places:
                return self.places[key]
        section = keys[0]
        while section:
            section = section.rpartition(".")[0]
            if section in self.places:
                return self.places[section]
        return self.source

    def written(self, key: str) -> bool:
        """Whether somebody set the key."""
        return key in self.places
