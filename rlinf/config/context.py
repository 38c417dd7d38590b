"""The context of a cross-field check: the typed configuration, and where each key was written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, is_dataclass
from types import FunctionType, MethodType
from typing import Any, TypeVarTuple, cast

from rlinf.config.defaults import default_of, value_of
from rlinf.config.experiment import Config
from rlinf.config.names import leaves
from rlinf.config.problems import COMMAND_LINE, ConfigProblem, Origin, problem
from rlinf.schema.key import OWN, Readers


class RecordedReads:
    """A view of a section that calls ``record`` with the dotted key of each value that is read through it.

    Example:
        >>> from rlinf.schema import Sections
        >>> read = []
        >>> RecordedReads(Sections(), read.append).learner.optimizer.lr, read
        (1e-06, ['learner.optimizer.lr'])
    """

    def __init__(self, section: Any, record: Callable[[str], None], prefix: str = "") -> None:
        self._section, self._record, self._prefix = section, record, prefix

    def __getattr__(self, name: str) -> Any:
        declared = getattr(type(self._section), name, None)
        # Properties and methods of a section read its keys as well: they run on the view.
        if isinstance(declared, property) and declared.fget is not None:
            return declared.fget(self)
        if isinstance(declared, FunctionType):
            return MethodType(declared, self)
        value, key = getattr(self._section, name), f"{self._prefix}{name}"
        if key in leaves():
            self._record(key)
            return value
        return RecordedReads(value, self._record, f"{key}.") if is_dataclass(value) else value


Arguments = TypeVarTuple("Arguments")


@dataclass
class Context:
    """Checks read ``config`` and call :meth:`error` or :meth:`unread`; what they read is recorded.

    A problem whose key is itself broken, or whose check read a broken key, is not reported.
    """

    whole: Config
    """The configuration itself; reading it is not recorded."""
    origins: Mapping[str, Origin]
    """The dotted keys that were written, with their files and lines."""
    source: Origin
    """The file as a whole, cited for keys that were not written."""
    broken: set[str]
    """Keys that already have a problem: nothing that reads them is judged."""
    problems: list[ConfigProblem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    _read: dict[str, None] = field(default_factory=dict)
    """The keys that the current check has read, in that order."""

    @property
    def config(self) -> Config:
        """Return a view of the configuration that records what the current check reads."""
        return cast(Config, RecordedReads(self.whole, lambda key: self._read.setdefault(key)))

    def run(self, check: Callable[[Context, *Arguments], None], *arguments: *Arguments) -> None:
        """Run a check, or a part of one, with a record of its own."""
        before, self._read = self._read, {}
        check(self, *arguments)
        self._read = before

    def error(self, key: str, message: str, fix: str, *, at: tuple[str, ...] = ()) -> None:
        """Report ``key``, unless it or what the check read is broken.

        If ``key`` is not written, the first written one of ``at`` is cited, or else of what the check read.
        """
        if not self.is_broken(key, *self._read):
            self.problems.append(problem(self.origin_of(key, *(at or self._read)), key, message, fix))

    def unread(self, key: str, why: str, fix: str) -> None:
        """Report a key that was set and that nothing would read: an error, or a warning with ``strict: false``.

        A key with its default value does no harm: resolved configurations name every key.
        """
        if not self.changed(key) or self.is_broken(key, *self._read):
            return
        message = f"{key} {why}"
        fix += self._dropped(key)
        if self.whole.algorithm.strict:
            fix = f"{fix} (Or set strict: false.)"
            self.problems.append(problem(self.origin_of(key), key, message, fix, unread=True))
        else:
            self.warnings.append(f"{self.origin_of(key)}: {message} {fix}")

    def _dropped(self, key: str) -> str:
        """Describe the way to drop a key that another file brings by `extends`."""
        origin = self.origin_of(key)
        if origin.line is None or origin.file in (self.source.file, COMMAND_LINE):
            return ""
        default = json.dumps(default_of(self.whole, key), default=str)
        return f" It is inherited from {origin.file}: `{key}={default}`, its default, drops it."

    def changed(self, key: str) -> bool:
        """Whether the key was set to something else than its default."""
        written = key in self.origins or any(key_written.startswith(f"{key}.") for key_written in self.origins)
        return written and value_of(self.whole, key) != default_of(self.whole, key)

    def is_for(self, readers: Readers) -> bool:
        """Whether the policy of this configuration is one of ``readers``."""
        name = self.config.policy.name
        return (OWN if ":" in name else name) in readers.policies

    def switched_off(self, switch: str, names: Iterable[str]) -> list[str]:
        """Return the keys of a section, by their ``names`` in it, that its ``switch`` turns off.

        Keys of a layer below are not among them: the command line may switch off what a file describes.
        """
        layer = self.origin_of(switch).layer
        keys = [f"{switch.rpartition('.')[0]}.{name}" for name in names]
        return [key for key in keys if layer <= self.origin_of(key).layer]

    def origin_of(self, *keys: str) -> Origin:
        """Return the line of the first of these keys that was written, else of the nearest section around the first."""
        for key in keys:
            if key in self.origins:
                return self.origins[key]
        section = keys[0]
        while section:
            section = section.rpartition(".")[0]
            # An override makes sections too, but what is missing is missing in the file.
            if section in self.origins and self.origins[section].line is not None:
                return self.origins[section]
        return self.source

    def is_broken(self, *keys: str) -> bool:
        """Whether one of the keys, or a section around it, has a problem already."""
        return any(key == bad or key.startswith(f"{bad}.") for key in keys for bad in self.broken if bad)


def neighbours(number: int, total: int) -> str:
    """List the divisors of ``total`` on both sides of ``number``, for a fix: "4 or 8"."""
    divisors = [candidate for candidate in range(1, total + 1) if total % candidate == 0]
    below = [candidate for candidate in divisors if candidate < number][-1:]
    above = [candidate for candidate in divisors if candidate > number][:1]
    return " or ".join(str(candidate) for candidate in below + above)
